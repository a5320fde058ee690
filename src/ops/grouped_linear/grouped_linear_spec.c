#include "ops/grouped_linear/grouped_refusals.h"
#include "ops/grouped_linear/grouped_spec.h"

static void fill_values(tgi_shaped *shaped, const spec_case *c)
{
  if (spec_is(c, "zeros")) {
    spec_set_all(shaped, "x", 0);
  } else if (spec_is(c, "large")) { /* products beyond f16's range, their sums mostly within */
    spec_scale(shaped, "x", 1000, 0);
  }
}

/* z on both sides of the limits and on them: the bias alone makes it. */
static void fill_limits(tgi_shaped *shaped)
{
  static const double kValues[] = {7,        7.03125, 6.96875, -7,  -7.03125,
                                   -6.96875, 12,      -12,     0.5, -0.25};
  const tg_tensor *bias = tgi_shaped_tensor(shaped, "bias");
  spec_set_all(shaped, "weight", 0);
  for (int64_t i = 0; i < tgi_numel(bias); i++) {
    spec_set(shaped, "bias", i, kValues[i * 7 % 10]);
  }
}

static void fill_fwd(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *x = tgi_shaped_tensor(shaped, "x"), *y = tgi_shaped_tensor(shaped, "y");
  const int64_t in = x->shape[1], kept = spec_fill_plan(shaped, c, y->shape[0], rng);
  spec_scale(shaped, "weight", in > 0 ? 1 / sqrt((double)in) : 1, 0);
  fill_values(shaped, c);
  if (spec_is(c, "limits")) {
    fill_limits(shaped);
  }
  if (spec_is(c, "not finite")) { /* in a row of an expert, and in one of none */
    spec_set(shaped, "x", 3, INFINITY);
    for (int64_t i = kept * in; i < tgi_numel(x); i++) {
      spec_set(shaped, "x", i, NAN);
    }
  }
}

static void fill_bwd(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *dy = tgi_shaped_tensor(shaped, "dy"), *x = tgi_shaped_tensor(shaped, "x");
  const int64_t in = x->shape[1], out = dy->shape[1];
  const int64_t kept = spec_fill_plan(shaped, c, dy->shape[0], rng);
  spec_scale(shaped, "weight", in > 0 ? 1 / sqrt((double)in) : 1, 0);
  fill_values(shaped, c);
  if (spec_is(c, "not finite")) {
    for (int64_t i = kept * out; i < tgi_numel(dy); i++) {
      spec_set(shaped, "dy", i, NAN);
    }
    for (int64_t i = kept * in; i < tgi_numel(x); i++) {
      spec_set(shaped, "x", i, NAN);
    }
  }
}

static const spec_case fwd_cases[] = {
    {"13x37x19_e5_bias"},
    /* nothing to do, and nothing to sum */
    {"0x5x7_e3_bias"},
    {"0x5x7_e3_k2_infirst"},
    {"3x5x0_e2"},
    {"3x0x7_e2"},
    {"3x0x7_e2_infirst_bias", "dropped"},
    /* one row */
    {"1x1x1_e1"},
    {"1x7x33_e1_bias"},
    {"1x65x31_e9_infirst_bias"},
    {"1x48x31_e8_k4_bias"},
    {"1x47x33_e8_k4_infirst"},
    /* in is out, in both layouts */
    {"17x29x29_e4_bias"},
    {"17x29x29_e4_infirst_bias"},
    {"16x32x32_e4_k2"},
    {"16x32x32_e4_k2_infirst"},
    /* prime sizes, gathered */
    {"31x37x41_e7_k3_bias"},
    {"31x37x41_e7_k3_infirst_bias"},
    {"23x19x67_e11_k5", "few experts"},
    {"23x67x19_e11_k5_infirst", "few experts"},
    {"37x53x47_e3_k2_bias", "one expert"},
    {"37x53x47_e3_k2_infirst_bias", "one expert"},
    {"29x31x17_e6_k4_bias", "dropped"},
    {"29x31x17_e6_infirst_bias", "dropped"},
    {"41x43x11_e5_infirst_k1", "dropped"},
    {"11x23x13_e4_k2_bias", "all dropped"},
    {"61x23x37_e5_bias", "not finite"},
    {"61x23x37_e5_infirst", "not finite"},
    /* more than one block of in; of rows; more experts than rows */
    {"9x769x33_e3_k2_bias"},
    {"9x769x33_e3_k2_infirst_bias"},
    {"301x24x20_e2_k2", "one expert"},
    {"5x16x24_e300_bias"},
    /* real widths */
    {"5x2880x34_e4_k2_bias"},
    {"5x2880x34_e4_k2_infirst_bias"},
    {"7x768x130_e8_k2"},
    {"3x2048x66_e16_k8"},
    /* whole vectors of 16 bytes, for tensor cores: several tiles of rows, columns and steps */
    {"301x72x200_e3_bias"},
    {"151x72x200_e3_k2_infirst_bias", "dropped"},
    {"257x64x208_e2_infirst", "one expert"},
    {"61x24x40_e4_bias", "not finite"},
    {"61x24x40_e4_infirst", "not finite"},
    {"33x200x24_e40_k2_bias", "all dropped"},
    {"3x2880x40_e4_k4_infirst_bias"},
    /* tiles of 128 x 128, 64 x 64 and 16 x 32: whole and ragged, with rows from 1 to 300 */
    {"300x135x257_e2_k2_bias"},
    {"297x99x131_e4_infirst_bias", "few experts"},
    {"260x152x264_e3_infirst", "not finite"},
    {"259x67x130_e2_bias_clamped_interleaved_pre", "one expert"},
    {"199x72x276_e3_k2_infirst_bias_swiglu_pre", "dropped"}, /* halves that end between vectors */
    {"129x40x320_e1_bias_swiglu_pre"},
    {"65x264x40_e8_k4_infirst_bias"},
    /* dtypes side by side */
    {"9x70x50_e3_k2_wf32_bias"},
    {"21x70x50_e3_yf32_bias"},
    {"10x70x50_e3_infirst_xf32_bias"},
    {"10x70x50_e3_k2_xf32_bf32_bias"},
    {"7x20x36_e3", "zeros"},
    {"7x20x36_e3_k2_bias", "large"},
    /* activations: with and without their input, in both packings and layouts */
    {"0x5x8_e3_bias_swiglu"},
    {"3x5x0_e2_clamped_pre"},
    {"3x0x6_e2_bias_swiglu_pre", "dropped"},
    {"1x7x2_e1_bias_clamped_interleaved_pre"},
    {"19x23x34_e5_bias_swiglu"},
    {"19x23x34_e5_k2_infirst_bias_swiglu_interleaved_pre", "dropped"},
    {"13x37x66_e7_k3_bias_swiglu_pre", "few experts"},
    {"13x37x66_e7_k3_infirst_clamped_interleaved", "one expert"},
    {"17x31x62_e4_infirst_bias_clamped_interleaved_pre", "dropped"},
    {"17x31x62_e4_bias_clamped_pre", "all dropped"},
    {"11x29x130_e3_k2_bias_clamped_interleaved_pre", "limits"},
    {"11x29x130_e3_infirst_bias_clamped", "limits"},
    {"61x23x38_e5_bias_clamped_interleaved_pre", "not finite"},
    {"61x23x38_e5_infirst_swiglu", "not finite"},
    {"3x2880x34_e4_k4_infirst_bias_clamped_interleaved_pre"},
    {"101x136x400_e5_k3_bias_swiglu_pre"},
    {"101x136x400_e5_k3_bias_clamped", "dropped"},
    {"101x136x400_e5_k3_infirst_bias_clamped_interleaved_pre", "few experts"},
    {"151x72x208_e3_bias_swiglu_interleaved", "dropped"},
    {"151x72x208_e3_infirst_bias_swiglu", "dropped"}, /* halves that are not in one tile */
    {"151x72x208_e3_infirst_bias_clamped_pre"},
    {"11x32x128_e3_k2_bias_clamped_interleaved_pre", "limits"},
    {"61x24x48_e5_bias_clamped_interleaved_pre", "not finite"},
    {"9x70x50_e3_k2_wf32_bias_swiglu"},
    {"21x70x50_e3_yf32_bias_clamped_interleaved"},
    {NULL},
};

/* dx has a row for each slot, and finite differences know a row of x alone: without slots, or
 * without dx. */
static const spec_case bwd_cases[] = {
    {"13x37x19_e5"},
    {"0x5x7_e3"},
    {"0x5x7_e3_k2_overwrite"},
    {"3x0x7_e2"},
    {"3x5x0_e2_infirst"},
    {"3x0x7_e2_overwrite"},
    {"1x1x2_e1"},
    {"1x7x33_e1"},
    {"1x65x31_e9_infirst"},
    {"1x48x31_e8_k4_nodx"},
    {"17x29x29_e4"},
    {"17x29x29_e4_infirst"},
    {"16x32x32_e4_k2_nodx"},
    {"16x32x32_e4_k2_infirst_nodx"},
    {"31x37x41_e7_k3_nodx"},
    {"31x37x41_e7_k3_infirst_nodx"},
    {"43x37x41_e7_infirst_nodweight"},
    {"43x37x41_e7_nodweight_nodbias"},
    {"43x19x23_e7_nodx_nodbias"},
    {"43x19x23_e7_nodx_nodweight"},
    {"23x19x67_e11_k5_nodx", "few experts"},
    {"23x19x67_e11_infirst", "few experts"},
    {"37x53x47_e3_infirst_overwrite", "few experts"},
    {"37x53x47_e3_k2_nodx_overwrite", "few experts"},
    {"137x23x27_e3", "one expert"}, /* three groups of rows in dbias */
    {"137x23x27_e3_infirst", "one expert"},
    {"29x31x17_e6", "dropped"},
    {"29x31x17_e6_k4_infirst_nodx", "dropped"},
    {"11x23x13_e4", "all dropped"},
    {"11x23x13_e4_k2_nodx_overwrite", "all dropped"},
    {"401x37x53_e3", "not finite"}, /* above the size that finite differences take */
    {"401x37x53_e3_infirst_overwrite", "not finite"},
    {"301x41x80_e5_k4", "dropped"}, /* the same, with dx beside slots */
    {"301x41x80_e5_k4_infirst", "dropped"},
    {"391x21x26_e2_k2_nodx", "one expert"}, /* blocks of rows in dweight */
    {"391x21x26_e2_k2_infirst_nodx", "one expert"},
    {"9x33x389_e3"}, /* two blocks of out in dx */
    {"9x33x389_e3_infirst"},
    /* whole vectors of 16 bytes, for tensor cores: tiles and steps that end within experts */
    {"29x32x24_e6", "dropped"},
    {"29x24x32_e6_infirst", "dropped"},
    {"301x72x200_e3_dwf32", "dropped"},
    {"301x72x200_e3_infirst_overwrite", "few experts"},
    {"151x136x208_e2_k2", "one expert"},
    {"151x136x208_e2_k2_infirst_dwf32_overwrite"},
    {"401x40x56_e3", "not finite"},
    {"401x40x56_e3_infirst_overwrite", "not finite"},
    {"401x40x56_e3_dwf32_bf32_overwrite", "few experts"},
    {"64x48x400_e2_nodweight"},
    {"301x131x99_e3_k2_nodx", "few experts"},
    {"257x133x97_e2_k2_infirst_nodx_overwrite", "one expert"},
    {"283x152x264_e4", "not finite"},
    {"270x136x144_e3_k2_infirst_dwf32_nodx", "dropped"},
    {"64x400x48_e2_nodx", "all dropped"},
    {"5x16x24_e300"},
    {"5x34x2880_e2_nodbias"},
    {"5x2880x34_e4_k2_infirst_nodx"},
    {"7x768x66_e2"},
    {"9x70x50_e3_wf32"},
    {"21x70x50_e3_yf32_dwf32"},
    {"390x30x50_e2_dwf32_bf32", "few experts"},
    {"390x30x50_e2_dwf32_bf32_overwrite"},
    {"10x70x50_e3_infirst_xf32"},
    {"7x20x36_e3", "zeros"},
    {NULL},
};

/* One layer of GPT-OSS 20B and of Qwen3 30B: up and down products, a prompt and one token. */
static const char *const bench_fwd[] = {
    "512x2880x5760_e32_k4_infirst_bias",
    "2048x2880x2880_e32_infirst_bias",
    "1x2880x5760_e32_k4_infirst_bias",
    "512x2048x1536_e128_k8",
    "512x2880x5760_e32_k4_infirst_bias_clamped_interleaved_pre",
    NULL,
};

static const char *const bench_bwd[] = {
    "512x2880x5760_e32_k4_infirst_nodweight_nodbias_overwrite",
    "512x2880x5760_e32_k4_infirst_nodx_overwrite",
    "512x2048x1536_e128_k8_overwrite",
    NULL,
};

static const spec_bad_scalar bad_fwd[] = {
    {"slots_per_row", -1, TG_BAD_ARGUMENT},
    {"slots_per_row", 1, TG_BAD_ARGUMENT}, /* the first case has no slots, and no activation */
    {"activation", -1, TG_BAD_ARGUMENT},
    {"activation", 3, TG_BAD_ARGUMENT},
    {"packing", 1, TG_BAD_ARGUMENT},
    {"alpha", 1, TG_BAD_ARGUMENT},
    {"limit", NAN, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

static const spec_bad_scalar bad_bwd[] = {
    {"slots_per_row", -1, TG_BAD_ARGUMENT},
    {"slots_per_row", 1, TG_BAD_ARGUMENT}, /* the first case has no slots */
    {NULL, 0, TG_OK},
};

static const spec_refusal fwd_refuses[] = {TGI_GROUPED_REFUSALS(grouped_fwd), {.entry = NULL}};
static const spec_refusal bwd_refuses[] = {TGI_GROUPED_REFUSALS(grouped_bwd), {.entry = NULL}};

const spec spec_grouped_linear_fwd = {
    .name = "grouped_linear_fwd",
    .cases = fwd_cases,
    .bench = bench_fwd,
    .f32_bound = 2e-6,
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .fill = fill_fwd,
    .refuses = fwd_refuses,
    .bad_scalars = bad_fwd,
};

const spec spec_grouped_linear_bwd = {
    .name = "grouped_linear_bwd",
    .cases = bwd_cases,
    .bench = bench_bwd,
    .f32_bound = 2e-6,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .gradient_of = "grouped_linear_fwd",
    .fill = fill_bwd,
    .refuses = bwd_refuses,
    .bad_scalars = bad_bwd,
};
