#include "ops/spec.h"

static void fill_fwd(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  (void)rng;
  if (spec_is(c, "infinite")) { /* stays in its pair; the last element stays alone */
    spec_set(shaped, "q", 3, INFINITY);
    spec_set(shaped, "q", tgi_numel(tgi_shaped_tensor(shaped, "q")) - 1, -INFINITY);
  } else if (spec_is(c, "nan")) {
    spec_set(shaped, "k", 1, NAN);
  } else if (spec_is(c, "large")) { /* products overflow f16 */
    spec_scale(shaped, "q", 1e4, 0);
  }
}

static void fill_bwd(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  (void)rng;
  if (spec_is(c, "large")) {
    spec_scale(shaped, "dq_out", 1e4, 0);
  }
}

/* The tables are random, so that the four values which a pair reads are all different. */
static const spec_case cases[] = {
    {"b0_s4_h2_kv1_d8"},
    {"b2_s0_h2_kv1_d8"},
    {"b1_s3_h0_d8"},
    {"b2_s3_h2_d0"},
    {"b1_s1_h1_d2"},
    {"b1_s1_h1_kv1_d2_interleaved"},
    {"b2_s5_h3_kv1_d6"},
    {"b2_s3_h2_kv2_d16_narrow"},
    {"b2_s7_h4_kv1_d30_p2", "infinite"},
    {"b2_s2_h4_kv1_d30_interleaved_p2", "nan"},
    {"b2_s3_h3_kv2_d32_interleaved"},
    {"b3_s4_h5_kv2_d80_batched_p3_x2"},
    {"b3_s4_h2_kv5_d80_batched_p3_x2_interleaved_narrow"},
    {"b2_s9_h3_kv1_d48_once", "large"}, /* rows of whole lines, second halves not */
    {"b2_s3_h4_kv2_d64_r32_narrow_interleaved_tf32"},
    {"b2_s3_h4_kv2_d64_r18_tf32_x5", "infinite"},
    {"b1_s2_h3_kv1_d37_r22_interleaved_batched"},
    {"b1_s4_h3_kv2_d53_r34_narrow_once"},
    {"b3_s37_h4_kv2_d64_once"},
    {"b1_s19_h8_kv2_d128_tf32_once_p100"},
    {"b2_s5_h4_kv2_d256_narrow"},
    {"b1_s3_h2_kv1_d1100_r1060"}, /* three blocks of coefficients */
    {"b1_s3_h2_kv1_d1100_r1060_interleaved_narrow"},
    {"b4_s120_h3_kv1_d34"},
    {NULL},
};

static const char *const bench[] = {"b4_s2048_h32_kv8_d128", "b8_s1024_h12_kv12_d64", NULL};

static const spec_bad_scalar bad_fwd[] = {
    {"rotary_dim", -2, TG_BAD_ARGUMENT},
    {"rotary_dim", 3, TG_BAD_ARGUMENT},
    {"rotary_dim", 1e6, TG_BAD_ARGUMENT},
    {"position_offset", -1, TG_BAD_ARGUMENT},
    {"position_offset", 1, TG_BAD_ARGUMENT},
    {"position_offset", 9e18, TG_BAD_ARGUMENT},
    {"pairing", 0, TG_BAD_ARGUMENT},
    {"pairing", 3, TG_BAD_ARGUMENT},
    {"rounding", 0, TG_BAD_ARGUMENT},
    {"rounding", 3, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

static const spec_bad_scalar bad_bwd[] = {
    {"rotary_dim", -2, TG_BAD_ARGUMENT},
    {"rotary_dim", 3, TG_BAD_ARGUMENT},
    {"rotary_dim", 1e6, TG_BAD_ARGUMENT},
    {"position_offset", -1, TG_BAD_ARGUMENT},
    {"position_offset", 1, TG_BAD_ARGUMENT},
    {"position_offset", 9e18, TG_BAD_ARGUMENT},
    {"pairing", 0, TG_BAD_ARGUMENT},
    {"pairing", 3, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

const spec spec_rope_fwd = {
    .name = "rope_fwd",
    .cases = cases,
    .bench = bench,
    .f32_bound = 3e-7,
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .fill = fill_fwd,
    .batch_invariant = true,
    .bad_scalars = bad_fwd,
};

const spec spec_rope_bwd = {
    .name = "rope_bwd",
    .cases = cases,
    .bench = bench,
    .f32_bound = 3e-7,
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .gradient_of = "rope_fwd",
    .fill = fill_bwd,
    .batch_invariant = true,
    .bad_scalars = bad_bwd,
};
