#include "ops/attention/attention_refusals.h"

/* Cuts [0, total] into sequences of random lengths; of three or more, the second is empty. */
static void fill_lengths(tgi_shaped *shaped, const char *slot, int64_t total, spec_rng *rng)
{
  const tg_tensor *t = tgi_shaped_tensor(shaped, slot);
  const int64_t batch = t->shape[0] - 1;
  int64_t at = 0;
  for (int64_t b = 1; b <= batch; b++) {
    const int64_t left = total - at, share = 2 * left / (batch - b + 1);
    if (b == batch) {
      at = total;
    } else if (batch < 3 || b != 2) {
      at += share > left ? spec_below(rng, left + 1) : spec_below(rng, share + 1);
    }
    spec_set(shaped, slot, b, (double)at);
  }
}

static bool present(tgi_shaped *shaped, const char *slot)
{
  const tg_tensor *t = tgi_shaped_tensor(shaped, slot);
  return t && t->dtype != TG_DTYPE_NONE;
}

/* Rows of keys that sequence b has room for. */
static int64_t extent_of(tgi_shaped *shaped, int64_t b)
{
  const tg_tensor *k = tgi_shaped_tensor(shaped, "k");
  if (present(shaped, "cu_seqlens_k")) {
    const int32_t *cu = tgi_shaped_tensor(shaped, "cu_seqlens_k")->data;
    return cu[b + 1] - cu[b];
  }
  const bool paged = present(shaped, "block_table");
  return k->shape[1] * (paged ? tgi_shaped_tensor(shaped, "block_table")->shape[1] : 1);
}

/* Sequence 0 has all its rows, of three or more the third has none, the others some. */
static void fill_keys(tgi_shaped *shaped, spec_rng *rng)
{
  const int64_t batch = tgi_shaped_tensor(shaped, "key_start")->shape[0];
  for (int64_t b = 0; b < batch; b++) {
    const int64_t extent = extent_of(shaped, b);
    const int64_t start = b == 0 ? 0 : spec_below(rng, extent / 2 + 1);
    const int64_t count = b == 0 ? extent : b == 2 ? 0 : spec_below(rng, extent - start + 1);
    spec_set(shaped, "key_start", b, (double)start);
    spec_set(shaped, "key_count", b, (double)count);
  }
}

/* A random permutation of the blocks; entries behind the last key are never read. */
static void fill_blocks(tgi_shaped *shaped, spec_rng *rng)
{
  const tg_tensor *table = tgi_shaped_tensor(shaped, "block_table");
  const int64_t blocks = tgi_shaped_tensor(shaped, "k")->shape[0];
  const int64_t entries = table->shape[0] * table->shape[1];
  int32_t *to = table->data;
  int64_t pool[512] = {0};
  for (int64_t i = 0; i < blocks; i++) {
    pool[i] = i;
  }
  for (int64_t i = 0; i < entries; i++) {
    const int64_t j = i + spec_below(rng, blocks - i), block = pool[j];
    pool[j] = pool[i];
    to[i] = (int32_t)block;
  }
  if (present(shaped, "key_count")) {
    const int32_t *start = tgi_shaped_tensor(shaped, "key_start")->data;
    const int32_t *count = tgi_shaped_tensor(shaped, "key_count")->data;
    const int64_t size = tgi_shaped_tensor(shaped, "k")->shape[1];
    for (int64_t i = 0; i < entries; i++) {
      const int64_t b = i / table->shape[1], first = i % table->shape[1] * size;
      const bool holds = first < start[b] + count[b] && first + size > start[b];
      to[i] = holds ? to[i] : -1;
    }
  }
}

static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  if (present(shaped, "cu_seqlens_q")) {
    fill_lengths(shaped, "cu_seqlens_q", tgi_shaped_tensor(shaped, "q")->shape[1], rng);
  }
  if (present(shaped, "cu_seqlens_k")) {
    fill_lengths(shaped, "cu_seqlens_k", tgi_shaped_tensor(shaped, "k")->shape[1], rng);
  }
  if (present(shaped, "key_start")) {
    fill_keys(shaped, rng);
  }
  if (present(shaped, "query_start")) {
    const int64_t batch = tgi_shaped_tensor(shaped, "query_start")->shape[0];
    for (int64_t b = 0; b < batch; b++) {
      spec_set(shaped, "query_start", b, (double)(spec_below(rng, extent_of(shaped, b) + 6) - 3));
    }
  }
  if (present(shaped, "block_table")) {
    fill_blocks(shaped, rng);
  }
  if (spec_is(c, "large")) { /* scores of thousands */
    spec_scale(shaped, "q", 60, 0);
    spec_scale(shaped, "k", 60, 0);
  } else if (spec_is(c, "saturated")) { /* most scores at the cap */
    spec_scale(shaped, "q", 8, 0);
  } else if (spec_is(c, "equal")) { /* every score is the same */
    spec_set_all(shaped, "q", 0);
  }
}

static const spec_case fwd_cases[] = {
    {"b0_h2_s5_d8"},
    {"b2_h2_s0_sk5_d8"},
    {"b2_h2_s5_sk0_d8"},
    {"b1_h1_s1_d8"},
    {"b1_h1_s1_d1_vd1_causal"},
    {"b2_h3_s2_d16_causal"},
    {"b1_h2_s17_d40_causal"},
    {"b1_h2_s63_d16_causal"},
    {"b1_h1_s64_d64_causal"},
    {"b1_h2_s65_d80_causal"},
    {"b1_h1_s130_d64_causal"},
    {"b2_h70_s130_sk40_d8"}, /* tiles of 192 queries, more than multiprocessors */
    {"b2_h70_kv7_s130_sk60_d16_causal"},
    {"b1_h70_s200_sk50_d24"},
    {"b1_h1_s130_sk1100_d64"}, /* keys in splits */
    {"b2_h1_s70_sk1030_d48_causal_sink"},
    {"b1_h2_s70_sk1700_d128_causal"},
    {"b1_h1_s520_sk1030_d96_vd128_causal"}, /* rows that see nothing of a split */
    {"b1_h1_s130_d33"},
    {"b1_h2_s64_sk128_d32"},
    {"b1_h2_s150_d96_causal"},
    {"b1_h1_s70_sk150_d256_causal"},
    {"b1_h1_s9_sk67_d128_causal"},
    {"b1_h2_s67_sk9_d16_causal"},
    {"b1_h1_s33_sk65_d192_vd128_causal"},
    {"b1_h1_s12_d16_vd40"},
    {"b2_h4_kv1_s17_d16_causal"},
    {"b1_h8_kv2_s33_d24_causal"},
    {"b1_h6_kv2_s65_d8_causal_nolse"},
    {"b1_h2_s65_d16_causal_w1"},
    {"b1_h2_s130_d16_causal_w64"},
    {"b1_h2_s130_d16_causal_w65"},
    {"b1_h2_s30_sk70_d16_causal_w7"},
    {"b1_h2_s70_d16_w5"},
    {"b1_h2_s70_sk40_d16_w9"},
    {"b1_h1_s40_d16_causal_w1000"},
    {"b1_h2_s33_d16_causal_cap20"},
    {"b1_h2_s70_d32_cap2", "saturated"},
    {"b1_h4_kv2_s33_d16_causal_sink"},
    {"b1_h4_kv2_s67_sk9_d16_causal_sinkf32"},
    {"b2_h3_s2_sk9_d16_causal_w3_cap5_sink"},
    {"b1_h2_s70_d64_causal", "large"},
    {"b1_h2_s70_d16_causal", "equal"},
    {"b4_h2_s97_d16_causal_packed"},
    {"b5_h4_kv2_s130_sk90_d16_causal_packed"},
    {"b2_h4_kv1_s150_d8_causal_packed"},
    {"b3_h2_s40_sk200_d8_packed_w20_sink"},
    {"b1_h1_s7_sk3_d8_packed_causal"},
    {"b4_h4_kv2_s12_sk70_d16_qpacked_causal"},
    {"b4_h2_s33_d16_causal_keys"},
    {"b4_h2_s33_sk70_d16_keys"},
    {"b3_h2_s17_sk70_d16_keys_start_causal"},
    {"b3_h2_s80_d16_start_causal_w10"},
    {"b4_h4_kv2_s5_sk70_d16_keys_packed"},
    {"b1_h2_s1_sk130_d64_causal"},
    {"b2_h8_kv1_s1_sk70_d128_causal"},
    {"b2_h4_kv4_s3_sk70_d40_causal_w6"},
    {"b1_h3_s5_sk1100_d16_causal"},
    {"b2_h4_kv2_s4_sk600_d16_causal_sink_keys"},
    {"b1_h8_kv1_s5_sk1030_d8_causal"},
    {"b2_h4_kv2_s1_sk64_d16_causal_page16"},
    {"b3_h4_kv2_s5_sk70_d16_causal_page7_keys"},
    {"b4_h2_s40_sk96_d16_causal_page32_keys"},
    {"b3_h2_s3_sk600_d8_vd24_causal_page16_keys_w40_cap9_sink"},
    {"b4_h2_s23_sk64_d16_causal_qpacked_page8_keys"},
    {"b3_h8_kv2_s1_sk700_d128_causal_keys"},
    {"b2_h16_kv1_s2_sk900_d64_causal_w300_sink"},
    {"b1_h8_kv2_s16_sk530_d96_causal"},
    {"b2_h10_kv1_s7_sk300_d192_vd128_keys_start_causal"},
    {"b1_h2_s3_sk400_d256_w150_cap9"},
    {"b2_h4_s1_sk1100_d40_vd72_causal_keys"},
    {"b3_h8_kv2_s1_sk640_d128_causal_page16_keys"},
    {"b2_h6_kv2_s16_sk330_d80_page24_keys_start_sinkf32"},
    {"b1_h4_kv1_s40_sk200_d64_causal_page64"},
    {"b1_h2_kv1_s40_sk70_d264_vd320_causal"},
    {"b2_h2_s40_d16_start_causal_w536870912"}, /* a window of 2^29 */
    /* TF32 */
    {"b1_h1_s17_d8_causal_tf32"},
    {"b2_h4_kv2_s130_d64_causal_tf32"},
    {"b1_h2_s70_sk150_d40_vd56_tf32"},
    {"b1_h1_s300_sk270_d128_tf32"},
    {"b1_h4_kv1_s67_sk90_d128_causal_tf32"},
    {"b1_h2_s150_d96_causal_w40_tf32"},
    {"b1_h2_s70_sk40_d72_vd24_w9_tf32"},
    {"b1_h2_s33_d64_causal_cap20_tf32"},
    {"b1_h4_kv2_s67_sk9_d128_causal_sinkf32_tf32"},
    {"b4_h2_s197_d64_causal_packed_tf32"},
    {"b3_h2_s140_sk200_d128_packed_w20_sink_tf32"},
    {"b3_h2_s37_sk70_d64_keys_start_causal_tf32"},
    {"b1_h2_s70_d64_causal_tf32", "equal"},
    {"b1_h2_s40_d33_causal_tf32"}, /* rows that are not vectors */
    {"b1_h1_s70_sk150_d256_causal_tf32"},
    {"b2_h8_kv1_s1_sk70_d128_causal_tf32"},
    {NULL},
};

static const spec_case bwd_cases[] = {
    {"b0_h2_s5_d8"},
    {"b2_h2_s0_sk5_d8"},
    {"b2_h2_s5_sk0_d8"},
    {"b1_h1_s1_d8"},
    {"b2_h3_s2_d16_causal"},
    {"b1_h2_s17_d40_causal"},
    {"b1_h1_s63_d16_causal"},
    {"b1_h1_s64_d64_causal"},
    {"b1_h2_s65_d80_causal"},
    {"b1_h1_s130_d64_causal"},
    {"b1_h1_s70_d33"},
    {"b1_h1_s64_sk128_d32"},
    {"b1_h1_s140_sk150_d96_causal"},
    {"b1_h2_kv1_s70_sk140_d128_causal_w80"},
    {"b1_h1_s9_sk67_d128_causal"},
    {"b1_h2_s67_sk9_d16_causal"},
    {"b1_h1_s33_sk65_d192_vd128_causal"},
    {"b1_h1_s12_d16_vd40"},
    {"b2_h4_kv1_s17_d16_causal"},
    {"b1_h8_kv2_s33_d24_causal"},
    {"b1_h2_s65_d16_causal_w1"},
    {"b1_h1_s130_d16_causal_w64"},
    {"b1_h2_s30_sk70_d16_causal_w7"},
    {"b1_h2_s70_d16_w5"},
    {"b1_h2_s33_d16_causal_cap20"},
    {"b1_h2_s40_d32_cap2", "saturated"},
    {"b1_h4_kv2_s33_d16_causal_sink"},
    {"b1_h4_kv2_s67_sk9_d16_causal_sinkf32"},
    {"b2_h3_s2_sk9_d16_causal_w3_cap5_sink_dsinkf32"},
    {"b2_h4_kv2_s9_d16_sink_nodsinks"},
    {"b1_h2_s70_d16_causal", "equal"},
    {"b4_h2_s97_d16_causal_packed"},
    {"b5_h4_kv2_s90_sk60_d16_causal_packed"},
    {"b2_h4_kv1_s150_d8_causal_packed_w70"},
    {"b3_h2_s40_sk100_d8_packed_w20_sink"},
    {"b4_h4_kv2_s12_sk70_d16_qpacked_causal"},
    {"b4_h2_s33_d16_causal_keys"},
    {"b3_h2_s17_sk70_d16_keys_start_causal"},
    {"b4_h4_kv2_s25_sk70_d16_keys_packed"},
    {"b1_h2_s40_d16_causal_nodq"},
    {"b1_h2_s40_d16_causal_nodk"},
    {"b1_h2_s40_d16_causal_nodv"},
    {"b1_h2_s40_d16_nodk_nodv"},
    {"b1_h40_kv1_s60_sk20_d8_sink"}, /* several chunks of rows */
    {"b2_h70_kv1_s60_sk21_d8_causal_packed"},
    /* sums in any order */
    {"b1_h2_s130_d64_causal_any"},
    {"b2_h4_kv1_s90_sk140_d128_any"},
    {"b1_h4_kv2_s150_d128_causal_w80_any"},
    {"b1_h2_s90_sk140_d96_causal_any"},
    {"b2_h4_kv2_s67_sk9_d40_vd56_causal_sink_any"},
    {"b1_h2_s33_d64_causal_cap20_any"},
    {"b4_h4_kv2_s97_d80_causal_packed_any"},
    {"b3_h2_s40_sk100_d128_packed_w20_sink_any"},
    {"b3_h2_s17_sk70_d64_keys_start_causal_any"},
    {"b1_h4_kv2_s40_d128_causal_nodq_any"},
    {"b1_h4_kv2_s40_d128_causal_nodk_any"},
    {"b1_h2_s40_d64_nodv_any"},
    /* a block of keys in two parts */
    {"b2_h8_kv2_s130_sk200_d128_causal"},
    {"b1_h4_kv2_s150_d64"},
    {"b3_h4_kv2_s90_sk140_d96_packed_w70"},
    /* heads of more than 128 elements */
    {"b1_h1_s70_sk140_d256_causal"},
    {"b1_h1_s65_sk70_d136_vd152"},
    {"b1_h2_kv1_s66_sk130_d192_causal_w80"},
    {"b1_h2_s40_sk70_d256_cap20_sink"},
    {"b1_h2_s33_sk70_d192_vd128_causal_cap2", "saturated"},
    {"b3_h2_kv1_s70_d160_vd96_causal_packed"},
    {"b3_h1_s70_sk40_d208_packed_w20_sink"},
    {"b3_h1_s17_sk70_d200_vd176_keys_start_causal"},
    {"b1_h1_s40_sk66_d192_vd128_nodq"},
    {"b1_h1_s66_d192_causal_nodk"},
    {"b1_h1_s66_d256_causal_nodv"},
    {"b1_h2_kv1_s140_sk150_d256_causal_w90_any"},
    {"b1_h2_s133_sk70_d192_any"},
    {"b2_h2_kv1_s30_sk133_d192_vd128_packed_w50"},
    {"b1_h2_kv1_s40_sk70_d264_vd320_causal"},
    {"b2_h2_s40_d16_start_causal_w536870912"}, /* a window of 2^29 */
    /* TF32 */
    {"b1_h1_s17_d8_causal_tf32"},
    {"b2_h4_kv2_s130_d64_causal_tf32"},
    {"b1_h2_s70_sk150_d40_vd56_tf32"},
    {"b1_h1_s140_sk170_d128_tf32"},
    {"b1_h4_kv1_s67_sk90_d128_causal_tf32"},
    {"b1_h2_s150_d96_causal_w40_tf32"},
    {"b1_h2_s70_sk40_d72_vd24_w9_tf32"},
    {"b1_h2_s33_d64_causal_cap20_tf32"},
    {"b1_h4_kv2_s67_sk9_d128_causal_sinkf32_tf32"},
    {"b4_h2_s97_d64_causal_packed_tf32"},
    {"b3_h2_s40_sk100_d128_packed_w20_sink_tf32"},
    {"b3_h2_s17_sk70_d64_keys_start_causal_tf32"},
    {"b1_h2_s70_d64_causal_tf32", "equal"},
    {"b1_h2_s40_d33_causal_tf32"},
    {"b1_h1_s70_sk140_d256_causal_tf32"},
    {"b1_h2_s70_d128_causal_nodq_tf32"},
    {"b1_h2_s70_d64_causal_nodk_tf32"},
    {"b1_h2_s70_d128_nodv_tf32"},
    {"b1_h2_s90_sk140_d128_causal_any_tf32"},
    {NULL},
};

static const char *const bench[] = {
    "b1_h12_s1024_d64_causal",      "b4_h12_s64_d64_causal",        "b8_h6_s256_d32_causal",
    "b1_h16_kv8_s1024_d128_causal", "b1_h16_kv8_s2048_d128_causal", NULL,
};

static const char *const fwd_bench[] = {
    "b1_h12_s1024_d64_causal",
    "b4_h12_s64_d64_causal",
    "b8_h6_s256_d32_causal",
    "b1_h16_kv8_s1024_d128_causal",
    "b1_h16_kv8_s2048_d128_causal",
    "b1_h12_s1_sk1024_d64_causal",
    "b1_h16_kv8_s1_sk4096_d128_causal",
    "b8_h32_kv8_s1_sk4096_d128_causal",
    NULL,
};

static const spec_bad_scalar bad_scalars[] = {
    {"scale", 0, TG_BAD_ARGUMENT},
    {"scale", -1, TG_BAD_ARGUMENT},
    {"scale", NAN, TG_BAD_ARGUMENT},
    {"softcap", -1, TG_BAD_ARGUMENT},
    {"softcap", INFINITY, TG_BAD_ARGUMENT},
    {"window", -1, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

/* A block table may have entries to spare. */
static bool free_extent(const char *slot, int axis)
{
  return slot[0] == 'b' && axis == 1;
}

const spec spec_attention_fwd = {
    .name = "attention_fwd",
    .cases = fwd_cases,
    .bench = fwd_bench,
    .f32_bound = 2e-6,
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .tf32_ceiling = 2e-3,
    .fill = fill,
    .free_extent = free_extent,
    .batch_invariant = true,
    .refuses = fwd_refuses,
    .bad_scalars = bad_scalars,
};

const spec spec_attention_bwd = {
    .name = "attention_bwd",
    .cases = bwd_cases,
    .bench = bench,
    .f32_bound = 4e-6,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .tf32_ceiling = 4e-3,
    .gradient_of = "attention_fwd",
    .fill = fill,
    .batch_invariant = true,
    .refuses = bwd_refuses,
    .bad_scalars = bad_scalars,
};
