#include "ops/spec.h"

static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  (void)rng;
  /* A mean of 1: errors are relative to the largest output, which a mean near 0 would make tiny. */
  spec_scale(shaped, "x", 1, 1);
  if (spec_is(c, "far from zero")) { /* a difference of means would lose the variance */
    spec_scale(shaped, "x", 1, 1e4);
  } else if (spec_is(c, "large")) { /* squares overflow f16 */
    spec_scale(shaped, "x", 500, 0);
  } else if (spec_is(c, "tiny")) { /* eps dominates */
    spec_scale(shaped, "x", 1e-4, 0);
  } else if (spec_is(c, "denormal")) {
    spec_scale(shaped, "x", 2e-38, 0);
  } else if (spec_is(c, "constant")) { /* variance 0: rstd = 1 / sqrt(eps) */
    spec_set_all(shaped, "x", 1.1);
  } else if (spec_is(c, "one large")) {
    spec_set(shaped, "x", 3, 1000);
  } else if (spec_is(c, "not a number")) { /* affects only its row */
    spec_set(shaped, "x", 3, NAN);
  } else if (spec_is(c, "infinite")) { /* the mean is not finite: the row becomes NaN */
    spec_set(shaped, "x", 3, INFINITY);
  }
}

static const spec_case fwd_cases[] = {
    {"0x8"},
    {"3x0"},
    {"1x1"},
    {"4x1"},
    {"1x17"},
    {"3x2"},
    {"5x3"},
    {"5x15"},
    {"7x16"},
    {"3x31", "constant"},
    {"33x48"},
    {"19x127", "large"},
    {"4x128", "tiny"},
    {"3x63", "denormal"},
    {"5x65", "not a number"},
    {"3x130", "infinite"},
    {"4x33", "far from zero"},
    {"3x4096", "far from zero"},
    {"3x768", "one large"},
    {"2x1024_nobias"},
    {"5x1023"},
    {"3x2048_wf32"},
    {"3x2880_nobias_wf32"},
    {"2x4096_wf32_yf32"},
    {"2x5120_nobias_wf32_yf32"},
    {"1x128_nostats"}, /* a fixed-width kernel with a partial last block */
    {"15x128", "far from zero"},
    {"31x128"},
    {"33x128", "one large"},
    {"65x128", "not a number"},
    {"300x67_nostats"},
    {NULL},
};

static const spec_case bwd_cases[] = {
    {"0x8"},
    {"3x0"},
    {"1x1"},
    {"4x1"},
    {"1x17"},
    {"3x2", "tiny"}, /* otherwise n = 1 and -1, and dx cancels to 0 */
    {"5x3"},
    {"5x15"},
    {"7x16"},
    {"3x31", "constant"},
    {"33x48"},
    {"9x47_residual"},
    {"70x768_residual"},
    {"5x130_residual_nodweight_nodbias_wf32"},
    {"19x127", "large"},
    {"4x128", "tiny"},
    {"3x63", "denormal"},
    {"310x67", "not a number"},
    {"6x3400", "far from zero"}, /* above the size that finite differences take */
    {"5x768", "one large"},
    {"6x1024_nodbias"},
    {"64x200"},
    {"65x1023_nodx"},
    {"128x96_residual"}, /* the largest case of cuda/rows/few_rows.cuh */
    {"129x96"},
    {"127x31_wf32_yf32"},
    {"126x130_nodbias"},
    {"129x1023_nodx"},
    {"17x2048_wf32"},
    {"3x2880_wf32_yf32"},
    {"3x4096_nodweight_nodbias"},
    {"3x130_nodweight"},
    {"2x5120_dwf32"},
    {"3x8200_residual"}, /* rows that the kernels read twice */
    {"5x12288_wf32"},
    {"129x8200_nodx"},
    {"1100x33"}, /* more than 64 blocks' worth of rows */
    {NULL},
};

static const char *const bench[] = {"65536x768", "16384x4096", NULL};

static const spec_bad_scalar bad_fwd[] = {
    {"eps", 0, TG_BAD_ARGUMENT},
    {"eps", -1e-6, TG_BAD_ARGUMENT},
    {"eps", NAN, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

const spec spec_layer_norm_fwd = {
    .name = "layer_norm_fwd",
    .cases = fwd_cases,
    .bench = bench,
    .f32_bound = 5e-7,
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .fill = fill,
    .batch_invariant = true,
    .bad_scalars = bad_fwd,
};

const spec spec_layer_norm_bwd = {
    .name = "layer_norm_bwd",
    .cases = bwd_cases,
    .bench = bench,
    .f32_bound = 2e-6,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .gradient_of = "layer_norm_fwd",
    .fill = fill,
    .batch_invariant = true,
};
