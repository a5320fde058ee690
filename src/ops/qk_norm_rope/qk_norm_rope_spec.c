#include "ops/spec.h"

static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  (void)rng;
  if (spec_is(c, "large")) { /* squares overflow f16 */
    spec_scale(shaped, "q", 500, 0);
  } else if (spec_is(c, "tiny")) { /* eps dominates */
    spec_scale(shaped, "q", 1e-4, 0);
    spec_scale(shaped, "k", 1e-4, 0);
  } else if (spec_is(c, "zeros")) {
    spec_set_all(shaped, "k", 0);
  } else if (spec_is(c, "one large")) {
    spec_set(shaped, "k", 3, 1000);
  }
}

static const spec_case fwd_cases[] = {
    {"b0_s4_h2_kv1_d8"},
    {"b2_s0_h2_kv1_d8"},
    {"b2_s3_h2_kv0_d8"},
    {"b2_s3_h2_kv1_d0"},
    {"b1_s1_h1_kv1_d2"},
    {"b1_s1_h1_kv2_d2_interleaved_once"},
    {"b2_s5_h3_kv1_d6"},
    {"b2_s3_h2_kv2_d16_narrow", "zeros"},
    {"b2_s7_h4_kv1_d30_p2", "large"},
    {"b2_s3_h3_kv2_d32_interleaved_wf32"},
    {"b3_s4_h5_kv2_d80_batched_p3_x2_once"},
    {"b2_s9_h3_kv1_d48", "tiny"},
    {"b2_s3_h4_kv2_d64_r32_narrow_interleaved_tf32_wf32_once"},
    {"b2_s3_h4_kv2_d64_r18_tf32_x5_norstd", "one large"},
    {"b1_s2_h3_kv1_d37_r22_interleaved_batched"},
    {"b1_s4_h3_kv2_d53_r34_narrow_wf32"},
    {"b3_s37_h4_kv2_d64_norstd"},
    {"b1_s19_h8_kv2_d128_p100"},
    {"b1_s3_h2_kv1_d1100_r1060_tf32"},
    {"b1_s3_h2_kv1_d1100_r1060_interleaved_narrow"},
    {"b4_s120_h3_kv1_d34_once"},
    {NULL},
};

static const spec_case bwd_cases[] = {
    {"b0_s4_h2_kv1_d8"},
    {"b2_s0_h2_kv1_d8"},
    {"b2_s3_h2_kv0_d8"},
    {"b2_s3_h2_kv1_d0"},
    {"b1_s1_h1_kv1_d2"},
    {"b1_s2_h3_kv2_d2_interleaved"},
    {"b2_s5_h3_kv1_d6"},
    {"b2_s3_h2_kv2_d16_narrow", "zeros"},
    {"b2_s7_h4_kv1_d30_p2", "large"},
    {"b2_s3_h3_kv2_d32_interleaved_wf32"},
    {"b3_s4_h5_kv2_d80_batched_p3_x2_nodq"},
    {"b2_s9_h3_kv1_d48_nodqweight", "tiny"},
    {"b2_s3_h4_kv2_d64_r32_narrow_interleaved_tf32_wf32_nodk"},
    {"b2_s3_h4_kv2_d64_r18_tf32_x5_nodkweight", "one large"},
    {"b1_s2_h3_kv1_d37_r22_interleaved_batched_nodqweight_nodkweight"},
    {"b1_s4_h3_kv2_d53_r34_narrow_wf32"},
    {"b3_s37_h4_kv2_d64_dwf32"},
    {"b1_s19_h8_kv2_d128_p100_dwf32_nodq_nodk"},
    {"b1_s3_h2_kv1_d1100_r1060_tf32"},
    {"b1_s3_h2_kv1_d1100_r1060_interleaved_narrow"},
    {"b9_s120_h2_kv1_d18"}, /* more than 64 blocks' worth of tokens */
    {NULL},
};

static const char *const bench[] = {"b4_s2048_h32_kv8_d128", "b8_s1024_h12_kv12_d64", NULL};

#define BAD_ROTATIONS                                                                              \
  {"rotary_dim", -2, TG_BAD_ARGUMENT}, {"rotary_dim", 3, TG_BAD_ARGUMENT},                         \
      {"rotary_dim", 1e6, TG_BAD_ARGUMENT}, {"position_offset", -1, TG_BAD_ARGUMENT},              \
      {"position_offset", 1, TG_BAD_ARGUMENT}, {"position_offset", 9e18, TG_BAD_ARGUMENT},         \
      {"pairing", 0, TG_BAD_ARGUMENT},                                                             \
  {                                                                                                \
    "pairing", 3, TG_BAD_ARGUMENT                                                                  \
  }

static const spec_bad_scalar bad_fwd[] = {
    BAD_ROTATIONS,
    {"eps", 0, TG_BAD_ARGUMENT},
    {"eps", -1e-6, TG_BAD_ARGUMENT},
    {"eps", NAN, TG_BAD_ARGUMENT},
    {"rounding", 0, TG_BAD_ARGUMENT},
    {"rounding", 3, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

static const spec_bad_scalar bad_bwd[] = {
    BAD_ROTATIONS,
    {NULL, 0, TG_OK},
};

const spec spec_qk_norm_rope_fwd = {
    .name = "qk_norm_rope_fwd",
    .cases = fwd_cases,
    .bench = bench,
    .f32_bound = 5e-7,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .fill = fill,
    .batch_invariant = true,
    .bad_scalars = bad_fwd,
};

const spec spec_qk_norm_rope_bwd = {
    .name = "qk_norm_rope_bwd",
    .cases = bwd_cases,
    .bench = bench,
    .f32_bound = 2e-6,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .gradient_of = "qk_norm_rope_fwd",
    .fill = fill,
    .batch_invariant = true,
    .bad_scalars = bad_bwd,
};
