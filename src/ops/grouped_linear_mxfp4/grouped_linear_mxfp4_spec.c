#include "ops/grouped_linear/grouped_spec.h"
#include "ops/grouped_linear_mxfp4/mxfp4_packed.h"

#include <stdio.h>

/* Weights over all codes, with scales that keep sums near 1, packed. The special words are: small
 * (scales whose values are denormal, down to the least), wide (scales that differ by 2^20 between
 * neighbouring groups). */
static void fill_weight(tgi_shaped *shaped, const spec_case *c, int64_t out, int64_t in,
                        spec_rng *rng)
{
  const int64_t experts = tgi_shaped_tensor(shaped, "offsets")->shape[0] - 1;
  const int64_t groups = in / TGI_MXFP4_GROUP, count = experts * out * groups;
  uint8_t *blocks = malloc((size_t)(16 * count + 8)), *scales = malloc((size_t)count + 1);
  const int usual = 126 - (int)lround(log2(3 * sqrt((double)in + 1)));
  for (int64_t i = 0; i < 16 * count; i += 8) {
    const uint64_t bits = spec_bits(rng);
    memcpy(blocks + i, &bits, 8);
  }
  for (int64_t i = 0; i < count; i++) {
    scales[i] = (uint8_t)(spec_is(c, "small")  ? spec_below(rng, 4)
                          : spec_is(c, "wide") ? usual - 20 * (int)spec_below(rng, 3)
                                               : usual + (int)spec_below(rng, 3));
  }
  const tg_grouped_linear_mxfp4_pack_source a = {
      .blocks = {.data = blocks, .dtype = TG_U8, .ndim = 4, .shape = {experts, out, groups, 16}},
      .scales = {.data = scales, .dtype = TG_U8, .ndim = 3, .shape = {experts, out, groups}},
      .packed = *tgi_shaped_tensor(shaped, "weight")};
  tg_error error;
  if (tg_grouped_linear_mxfp4_pack(&a, &error) != TG_OK) {
    fprintf(stderr, "%s\n", error.text);
    abort();
  }
  free(blocks);
  free(scales);
}

/* z on both sides of the limits and on them: x is 0, the bias alone makes it. */
static void fill_limits(tgi_shaped *shaped)
{
  static const double kValues[] = {7,        7.03125, 6.96875, -7,  -7.03125,
                                   -6.96875, 12,      -12,     0.5, -0.25};
  const tg_tensor *bias = tgi_shaped_tensor(shaped, "bias");
  spec_set_all(shaped, "x", 0);
  for (int64_t i = 0; i < tgi_numel(bias); i++) {
    spec_set(shaped, "bias", i, kValues[i * 7 % 10]);
  }
}

/* x and dy as the words say: zeros, large (f16's sums reach its range), small (beside small
 * weights, sums that are normal numbers), not finite (in a row of an expert, and in those of none).
 */
static void fill_rows(tgi_shaped *shaped, const spec_case *c, const char *rows, int64_t kept)
{
  const tg_tensor *t = tgi_shaped_tensor(shaped, rows);
  if (spec_is(c, "zeros")) {
    spec_set_all(shaped, rows, 0);
  } else if (spec_is(c, "large")) {
    spec_scale(shaped, rows, 1000, 0);
  } else if (spec_is(c, "small")) {
    spec_scale(shaped, rows, t->dtype == TG_F16 ? 1 : 0x1p110, 0);
  } else if (spec_is(c, "not finite")) {
    spec_set(shaped, rows, 3, INFINITY);
    for (int64_t i = kept * t->shape[1]; i < tgi_numel(t); i++) {
      spec_set(shaped, rows, i, NAN);
    }
  }
}

static void fill_fwd(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *x = tgi_shaped_tensor(shaped, "x"), *y = tgi_shaped_tensor(shaped, "y");
  const bool halved = tgi_present(tgi_shaped_tensor(shaped, "preactivation")) ||
                      strstr(c->shape, "swiglu") || strstr(c->shape, "clamped");
  fill_weight(shaped, c, halved ? 2 * y->shape[1] : y->shape[1], x->shape[1], rng);
  fill_rows(shaped, c, "x", spec_fill_plan(shaped, c, y->shape[0], rng));
  if (spec_is(c, "limits")) {
    fill_limits(shaped);
  }
}

static void fill_bwd(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *dy = tgi_shaped_tensor(shaped, "dy"), *dx = tgi_shaped_tensor(shaped, "dx");
  fill_weight(shaped, c, dy->shape[1], dx->shape[1], rng);
  fill_rows(shaped, c, "dy", spec_fill_plan(shaped, c, dy->shape[0], rng));
}

static const spec_case fwd_cases[] = {
    {"13x64x19_e5_bias"},
    /* nothing to do, and nothing to sum */
    {"0x32x7_e3_bias"},
    {"0x32x7_e3_k2"},
    {"3x32x0_e2"},
    {"3x0x7_e2"},
    {"3x0x7_e2_bias", "dropped"},
    /* one row; edges of panels */
    {"1x32x1_e1"},
    {"1x32x33_e1_bias"},
    {"1x64x31_e9_bias"},
    {"1x96x32_e8_k4_bias"},
    {"1x128x65_e8_k4"},
    /* in is out */
    {"17x32x32_e4_bias"},
    {"16x64x64_e4_k2"},
    /* every size of a tile, and the strips and tasks behind it */
    {"2x64x37_e1"},
    {"3x64x37_e1"},
    {"4x64x37_e1"},
    {"5x64x37_e1"},
    {"6x64x37_e1"},
    {"7x64x37_e1"},
    {"8x64x37_e1"},
    {"9x64x37_e1"},
    {"10x64x37_e1"},
    {"11x64x37_e1"},
    {"12x64x37_e1_bias"},
    {"19x64x37_e1"},
    {"101x32x41_e3_bias", "one expert"},
    {"301x32x20_e2_k2", "one expert"},
    /* prime sizes, gathered; experts without rows; rows without experts */
    {"31x32x41_e7_k3_bias"},
    {"23x64x67_e11_k5", "few experts"},
    {"37x96x47_e3_k2_bias", "one expert"},
    {"29x32x17_e6_k4_bias", "dropped"},
    {"41x64x11_e5_k1", "dropped"},
    {"11x32x13_e4_k2_bias", "all dropped"},
    {"61x32x37_e5_bias", "not finite"},
    {"5x32x24_e300_bias"},
    /* more panels than a task has */
    {"3x32x2100_e2"},
    {"3x416x1200_e2_bias"},
    /* real widths */
    {"5x2880x34_e4_k2_bias"},
    {"7x768x130_e8_k2"},
    {"3x2048x66_e16_k8"},
    /* dtypes side by side */
    {"21x64x50_e3_yf32_bias"},
    {"10x64x50_e3_k2_bf32_bias"},
    {"10x64x50_e3_yf32_bf32_bias"},
    /* special values */
    {"7x32x36_e3", "zeros"},
    {"7x32x36_e3_k2_bias", "large"},
    {"7x64x36_e3_yf32", "small"},
    {"5x320x36_e3_k2", "wide"},
    /* activations: with and without their input, in both packings */
    {"0x32x8_e3_bias_swiglu"},
    {"3x32x0_e2_clamped_pre"},
    {"3x0x6_e2_bias_swiglu_pre", "dropped"},
    {"1x32x2_e1_bias_clamped_interleaved_pre"},
    {"19x32x34_e5_bias_swiglu"},
    {"19x32x34_e5_k2_bias_swiglu_interleaved_pre", "dropped"},
    {"13x64x66_e7_k3_bias_swiglu_pre", "few experts"},
    {"13x32x66_e7_k3_clamped_interleaved", "one expert"},
    {"17x32x62_e4_bias_clamped_pre", "all dropped"},
    {"11x32x130_e3_k2_bias_clamped_interleaved_pre", "limits"},
    {"11x32x130_e3_bias_clamped", "limits"},
    {"61x32x38_e5_bias_clamped_interleaved_pre", "not finite"},
    {"3x2880x34_e4_k4_bias_clamped_interleaved_pre"},
    {"21x64x50_e3_yf32_bias_clamped_interleaved"},
    {NULL},
};

static const spec_case bwd_cases[] = {
    {"13x64x19_e5_dbias"},
    {"0x32x7_e3_dbias"},
    {"3x0x7_e2_dbias"},
    {"3x32x0_e2"},
    {"1x32x2_e1"},
    {"1x32x33_e1"},
    {"1x64x31_e9_dbias"},
    {"17x32x32_e4"},
    {"43x64x41_e7"},
    {"23x32x67_e11", "few experts"},
    {"37x96x47_e3_dbias_bf32", "one expert"},
    {"29x32x17_e6_dbias", "dropped"},
    {"11x32x13_e4_dbias", "all dropped"},
    {"401x64x53_e3_dbias", "not finite"}, /* above the size that finite differences take */
    {"301x64x80_e5", "dropped"},
    {"9x32x389_e3"}, /* two blocks of out */
    {"5x32x24_e300_dbias"},
    {"5x64x2880_e2"},
    {"5x2880x34_e4"},
    {"3x2048x1100_e2"}, /* more than one piece of columns */
    {"21x64x50_e3_yf32_dbias_bf32"},
    {"7x32x36_e3", "zeros"},
    {"7x32x36_e3", "large"},
    {"5x320x36_e3", "wide"},
    {NULL},
};

/* One layer of GPT-OSS 20B: up and down products of one token, then of a prompt. */
static const char *const bench_fwd[] = {
    "1x2880x5760_e32_k4_bias",
    "4x2880x2880_e32_bias",
    "1x2880x5760_e32_k4_bias_clamped_interleaved",
    "512x2880x5760_e32_k4_bias",
    "2048x2880x2880_e32_bias",
    NULL,
};

static const char *const bench_bwd[] = {
    "2048x2880x5760_e32_dbias_bf32",
    "2048x2880x2880_e32",
    NULL,
};

static const spec_bad_scalar bad_fwd[] = {
    {"slots_per_row", -1, TG_BAD_ARGUMENT},
    {"slots_per_row", 1, TG_BAD_ARGUMENT}, /* the first case has no slots, and no activation */
    {"activation", -1, TG_BAD_ARGUMENT},
    {"packing", 1, TG_BAD_ARGUMENT},
    {"alpha", 1, TG_BAD_ARGUMENT},
    {"limit", NAN, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

const spec spec_grouped_linear_mxfp4_fwd = {
    .name = "grouped_linear_mxfp4_fwd",
    .cases = fwd_cases,
    .bench = bench_fwd,
    .f32_bound = 2e-6,
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .fill = fill_fwd,
    .bad_scalars = bad_fwd,
};

const spec spec_grouped_linear_mxfp4_bwd = {
    .name = "grouped_linear_mxfp4_bwd",
    .cases = bwd_cases,
    .bench = bench_bwd,
    .f32_bound = 2e-6,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .gradient_of = "grouped_linear_mxfp4_fwd",
    .fill = fill_bwd,
};
