#include "ops/spec.h"

static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  (void)rng;
  if (spec_is(c, "large")) { /* squares overflow f16 */
    spec_scale(shaped, "x", 500, 0);
  } else if (spec_is(c, "tiny")) { /* eps dominates */
    spec_scale(shaped, "x", 1e-4, 0);
  } else if (spec_is(c, "zeros")) {
    spec_set_all(shaped, "x", 0);
  } else if (spec_is(c, "one large")) {
    spec_set(shaped, "x", 3, 1000);
  }
}

static const spec_case fwd_cases[] = {
    {"0x8"},
    {"3x0"},
    {"1x1"},
    {"1x17"},
    {"5x15"},
    {"7x16"},
    {"3x31", "zeros"},
    {"33x48"},
    {"19x127", "large"},
    {"4x128", "tiny"},
    {"3x768_gptoss", "one large"},
    {"2x1024_gptoss_offset"},
    {"5x1023_offset"},
    {"3x2048_wf32"},
    {"3x2880_gptoss_wf32"},
    {"2x4096_wf32_yf32"},
    {"2x5120_gptoss_wf32_yf32"},
    {"1x128_norstd"}, /* a fixed-width kernel with a partial last block */
    {"31x128"},
    {"33x128", "large"},
    {"65x128_gptoss"},
    {"67x128_offset"},
    {"300x67_norstd"},
    {"6x37_gptoss_offset"},
    {NULL},
};

static const spec_case bwd_cases[] = {
    {"0x8"},
    {"3x0"},
    {"1x1"},
    {"1x17"},
    {"5x15"},
    {"7x16"},
    {"3x31", "zeros"},
    {"33x48"},
    {"19x127", "large"},
    {"4x128", "tiny"},
    {"3x768", "one large"},
    {"2x1024_offset"},
    {"64x200"},
    {"65x1023_nodx"},
    {"128x96_offset"}, /* the largest case of cuda/rows/few_rows.cuh */
    {"129x96"},
    {"127x31_wf32_yf32"},
    {"129x1023_nodx"},
    {"17x2048_wf32"},
    {"3x2880_wf32_yf32"},
    {"3x4096_nodweight"},
    {"6x37_offset"},
    {"2x5120_dwf32"},
    {"3x8200"}, /* rows that the kernels read twice */
    {"5x12288_wf32"},
    {"129x11800_nodx"}, /* sums of nearly 48 KB */
    {"1100x33"},        /* more than 64 blocks' worth of rows */
    {NULL},
};

static const char *const bench[] = {"65536x768", "16384x4096", NULL};

static const spec_bad_scalar bad_fwd[] = {
    {"eps", 0, TG_BAD_ARGUMENT},
    {"eps", -1e-6, TG_BAD_ARGUMENT},
    {"eps", NAN, TG_BAD_ARGUMENT},
    {"weight_offset", INFINITY, TG_BAD_ARGUMENT},
    {"policy", 0, TG_BAD_ARGUMENT},
    {"policy", 3, TG_BAD_ARGUMENT},
    {"weight_offset", NAN, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

static const spec_bad_scalar bad_bwd[] = {
    {"weight_offset", NAN, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

const spec spec_rms_norm_fwd = {
    .name = "rms_norm_fwd",
    .cases = fwd_cases,
    .bench = bench,
    .f32_bound = 5e-7,
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .rounds_f32_outputs = true, /* policy llama, y in f32 */
    .fill = fill,
    .batch_invariant = true,
    .bad_scalars = bad_fwd,
};

const spec spec_rms_norm_bwd = {
    .name = "rms_norm_bwd",
    .cases = bwd_cases,
    .bench = bench,
    .f32_bound = 2e-6,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .gradient_of = "rms_norm_fwd",
    .fill = fill,
    .batch_invariant = true,
    .bad_scalars = bad_bwd,
};
