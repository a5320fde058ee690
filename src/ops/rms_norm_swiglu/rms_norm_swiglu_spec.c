#include "ops/spec.h"

static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  static const double kEdge[] = {0, -0.0, 20, -20, 88, -88, 104, -104, 1e4, -1e4, 1e-4, -1e-4};
  (void)rng;
  if (spec_is(c, "large")) { /* squares overflow f16 */
    spec_scale(shaped, "x", 500, 0);
  } else if (spec_is(c, "tiny")) { /* eps dominates */
    spec_scale(shaped, "x", 1e-4, 0);
  } else if (spec_is(c, "zeros")) {
    spec_set_all(shaped, "x", 0);
  } else if (spec_is(c, "one large")) {
    spec_set(shaped, "x", 3, 1000);
  } else if (spec_is(c, "open and shut")) { /* both saturated ranges of silu, and between */
    spec_scale(shaped, "gate", 8, 0);
  } else if (spec_is(c, "edges")) {
    for (size_t i = 0; i < sizeof kEdge / sizeof kEdge[0]; i++) {
      spec_set(shaped, "gate", (int64_t)i, kEdge[i]);
    }
  } else if (spec_is(c, "not a number")) {
    spec_set(shaped, "gate", 70, NAN);
    spec_set(shaped, "x", 3, NAN);
    spec_set(shaped, "gate", 150, -1e4); /* shut: no gradient passes, not even an infinite one */
    spec_set_infinite_dy(shaped, 150);
  }
}

static const spec_case fwd_cases[] = {
    {"0x8"},
    {"3x0"},
    {"1x1"},
    {"1x17"},
    {"5x15_once"},
    {"7x16"},
    {"3x31", "zeros"},
    {"33x48_once"},
    {"19x127", "large"},
    {"4x128_once", "tiny"},
    {"3x61", "edges"},
    {"3x61_once", "edges"},
    {"9x100", "open and shut"},
    {"3x65", "not a number"},
    {"3x768_once", "one large"},
    {"5x1023"},
    {"3x2048_wf32"},
    {"3x2880_once_wf32"},
    {"2x5120"},
    {"300x67_norstd"},
    {NULL},
};

static const spec_case bwd_cases[] = {
    {"0x8"},
    {"3x0"},
    {"1x1", "tiny"}, /* otherwise the norm of one element has derivative 0 */
    {"1x17"},
    {"5x15"},
    {"7x16"},
    {"3x31", "zeros"},
    {"33x48"},
    {"19x127", "large"},
    {"4x128", "tiny"},
    {"3x7001", "edges"}, /* above the size that finite differences take */
    {"9x100", "open and shut"},
    {"310x67", "not a number"}, /* above the size that finite differences take */
    {"3x768", "one large"},
    {"65x1023_nodx"},
    {"9x1023_nodgate"},
    {"17x200_nodx_nodgate"},
    {"17x2048_wf32"},
    {"3x4096_nodweight"},
    {"2x5120_dwf32"},
    {"1100x33"}, /* more than 64 blocks' worth of rows */
    {NULL},
};

static const char *const bench[] = {"65536x768", "16384x4096", NULL};

static const spec_bad_scalar bad_fwd[] = {
    {"eps", 0, TG_BAD_ARGUMENT},      {"eps", -1e-6, TG_BAD_ARGUMENT},
    {"eps", NAN, TG_BAD_ARGUMENT},    {"rounding", 0, TG_BAD_ARGUMENT},
    {"rounding", 3, TG_BAD_ARGUMENT}, {NULL, 0, TG_OK},
};

const spec spec_rms_norm_swiglu_fwd = {
    .name = "rms_norm_swiglu_fwd",
    .cases = fwd_cases,
    .bench = bench,
    .f32_bound = 1e-6,
    .f16_ceiling = 3e-3,
    .bf16_ceiling = 2.4e-2,
    .fill = fill,
    .batch_invariant = true,
    .bad_scalars = bad_fwd,
};

const spec spec_rms_norm_swiglu_bwd = {
    .name = "rms_norm_swiglu_bwd",
    .cases = bwd_cases,
    .bench = bench,
    .f32_bound = 2e-6,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .gradient_of = "rms_norm_swiglu_fwd",
    .fill = fill,
    .batch_invariant = true,
};
