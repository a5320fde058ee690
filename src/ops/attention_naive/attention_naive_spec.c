#include "ops/spec.h"

static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  (void)rng;
  if (spec_is(c, "large")) { /* scores of thousands */
    spec_scale(shaped, "q", 60, 0);
    spec_scale(shaped, "k", 60, 0);
  } else if (spec_is(c, "equal")) { /* every score is the same */
    spec_set_all(shaped, "q", 0);
  } else if (spec_is(c, "all far below")) { /* the first query's scores are all -infinity */
    for (int64_t i = 0; i < tgi_shaped_tensor(shaped, "q")->shape[3]; i++) {
      spec_set(shaped, "q", i, -INFINITY);
    }
    spec_set_all(shaped, "k", 1);
  }
}

static const spec_case fwd_cases[] = {
    {"b0_h2_s5_d8"},
    {"b2_h2_s0_sk5_d8"},
    {"b2_h2_s5_sk0_d8"},
    {"b1_h1_s1_d1"},
    {"b1_h1_s1_d1_causal"},
    {"b2_h3_s2_d16_causal"},
    {"b1_h2_s15_sk16_d40"},
    {"b1_h2_s17_d40_causal"},
    {"b1_h2_s63_d16_causal"},
    {"b1_h1_s64_d64_causal"},
    {"b1_h2_s65_d80_causal"},
    {"b1_h1_s130_d64_causal"},
    {"b1_h1_s31_sk401_d33"}, /* keys in two blocks of the product */
    {"b1_h1_s9_sk67_d128_causal"},
    {"b1_h2_s67_sk9_d16_causal"}, /* queries that see no key */
    {"b1_h1_s33_sk65_d192_vd129_causal"},
    {"b1_h1_s12_d16_vd40"},
    {"b2_h4_kv1_s17_d16_causal"},
    {"b1_h8_kv2_s33_d24_causal"},
    {"b3_h6_kv3_s5_sk7_d8_causal_np"},
    {"b1_h2_s1_sk130_d64_causal"},
    {"b1_h1_s300_sk200_d8_causal"}, /* several chunks of rows */
    {"b1_h2_s70_d64_causal", "large"},
    {"b1_h2_s70_d16_causal", "equal"},
    {"b1_h2_s5_d16", "all far below"},
    {NULL},
};

static const spec_case bwd_cases[] = {
    {"b0_h2_s5_d8"},
    {"b2_h2_s0_sk5_d8"},
    {"b2_h2_s5_sk0_d8"},
    {"b1_h1_s1_d1"},
    {"b2_h3_s2_d16_causal"},
    {"b1_h2_s15_sk16_d40"},
    {"b1_h2_s17_d40_causal"},
    {"b1_h1_s64_d64_causal"},
    {"b1_h2_s65_d33"},
    {"b1_h1_s9_sk67_d128_causal"},
    {"b1_h2_s67_sk9_d16_causal"},
    {"b1_h1_s13_sk25_d192_vd129_causal"},
    {"b1_h1_s12_d16_vd40"},
    {"b2_h4_kv1_s17_d16_causal"},
    {"b1_h8_kv2_s33_d24_causal"},
    {"b3_h6_kv3_s5_sk7_d8_causal"},
    {"b1_h1_s401_sk47_d8_causal"}, /* queries in two blocks of the product, several chunks */
    {"b1_h2_s40_d16_causal_nodq"},
    {"b1_h2_s40_d16_causal_nodk"},
    {"b1_h2_s40_d16_causal_nodv"},
    {"b1_h2_s40_d16_nodk_nodv"},
    {"b1_h2_s30_d16_causal", "equal"},
    {NULL},
};

static const char *const bench[] = {
    "b1_h12_s1024_d64_causal",
    "b4_h12_s64_d64_causal",
    NULL,
};

static const spec_bad_scalar bad_scalars[] = {
    {"scale", 0, TG_BAD_ARGUMENT},
    {"scale", -1, TG_BAD_ARGUMENT},
    {"scale", NAN, TG_BAD_ARGUMENT},
    {"scale", INFINITY, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

const spec spec_attention_naive_fwd = {
    .name = "attention_naive_fwd",
    .cases = fwd_cases,
    .bench = bench,
    .f32_bound = 2e-6,
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .fill = fill,
    .batch_invariant = true,
    .bad_scalars = bad_scalars,
};

const spec spec_attention_naive_bwd = {
    .name = "attention_naive_bwd",
    .cases = bwd_cases,
    .bench = bench,
    .f32_bound = 4e-6,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .gradient_of = "attention_naive_fwd",
    .fill = fill,
    .batch_invariant = true,
    .bad_scalars = bad_scalars,
};
