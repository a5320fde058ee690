#include "ops/shared/loss/loss_cases.h"

/* Logits of size 1, or of the case's. */
static void fill_all(tgi_shaped *shaped, const spec_case *c, bool ignores, int64_t ignore_index,
                     spec_rng *rng)
{
  const tg_tensor *weight = tgi_shaped_tensor(shaped, "weight");
  const tg_tensor *hidden = tgi_shaped_tensor(shaped, "hidden");
  const int64_t vocab = weight->shape[0], size = weight->shape[1];
  const double one = size > 0 ? 1 / sqrt((double)size) : 1;
  fill_targets(shaped, vocab, ignores, ignore_index, rng);
  spec_scale(shaped, "weight", spec_is(c, "large") ? 20 * one : one, 0);
  for (int64_t k = 0; k < tgi_numel(hidden); k++) {
    const int64_t i = k / size;
    if (spec_is(c, "ignored NaN") && ignores && i % 3 == 1) {
      spec_set(shaped, "hidden", k, NAN);
    } else if (spec_is(c, "NaN row") && i == 2) {
      spec_set(shaped, "hidden", k, NAN);
    } else if (spec_is(c, "ties")) {
      spec_set(shaped, "hidden", k, 0);
    }
  }
  if (spec_is(c, "masked") || spec_is(c, "rising")) {
    for (int64_t j = 0; j < vocab; j++) { /* masked: whole chunks without a chance */
      const double masked = j < vocab / 2 || j % 3 == 0 ? -60 : 0;
      spec_set(shaped, "bias", j, spec_is(c, "masked") ? masked : 20 * (double)j / (double)vocab);
    }
  } else if (spec_is(c, "all ignored")) {
    const int64_t rows = hidden->shape[0];
    for (int64_t i = 0; i < rows; i++) {
      spec_set(shaped, "targets", i, (double)ignore_index);
    }
  }
}

static void fill_fwd(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_linear_cross_entropy_fwd_args *a = (const void *)shaped->args.bytes;
  fill_all(shaped, c, a->has_ignore_index, a->ignore_index, rng);
}

static void fill_bwd(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_linear_cross_entropy_bwd_args *a = (const void *)shaped->args.bytes;
  fill_all(shaped, c, a->has_ignore_index, a->ignore_index, rng);
}

static void fill_fwdbwd(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_linear_cross_entropy_fwdbwd_args *a = (const void *)shaped->args.bytes;
  fill_all(shaped, c, a->has_ignore_index, a->ignore_index, rng);
}

/* Chunks of one row, of primes, that do not divide; rows beyond a chunk of ignored ones. */
static const spec_case fwd_cases[] = {
    {"9x5x31_itemsi64_ignore_bias_all"},
    {"0x5x7"}, /* NaN */
    {"0x5x7_sum_bias_all"},
    {"0x5x7_none_all"},
    {"3x0x7_bias_all"},
    {"1x1x1_all"},
    {"3x7x1_sum_smooth_z_all"},
    {"5x3x2_none_all"},
    {"7x13x15_none_ignore_bias_all_r2"},
    {"7x16x16_items_i32_all_r3"},
    {"9x17x17_itemsi32_ignore_r1"},
    {"9x31x33_itemsf32_smooth_z_bias_c10"},
    {"12x33x127_ignore5_smooth_all_r5_c13"},
    {"12x19x48_cap_all_c1"},
    {"6x48x768_none_cap_smooth_z_ignore_i32_bias_all_r4_c100"},
    {"5x32x1023_bias_all_c1000", "ties"},
    {"5x32x1024_none_all_c600", "large"},
    {"5x24x1025_none_smooth_bias_all_r2_c1024", "rising"},
    {"5x24x1025_none_cap_bias_all_c333", "rising"},
    {"9x20x2061_sum_ignore_bias_all_r4_c500", "masked"},
    {"7x12x301_none_ignore_all_r2_c50", "NaN row"},
    {"7x12x2099_ignore_all", "ignored NaN"},
    {"5x9x40_ignore_all", "all ignored"},
    {"7x9x40_none_ignore_all_r3_c7", "all ignored"},
    {"70x11x13_smooth_all_r64"},
    {"3x768x1200_all"},
    {"2x2880x70_none_all"},
    {"6x70x50_wf32_bias_all"},
    {"6x400x50_wf32_none_all_r4_c16"},
    {"6x70x50_bias_bf32_all"},
    {"2x8x50257_z_all"},
    {NULL},
};

static const spec_case bwd_cases[] = {
    {"9x5x31_itemsi64_ignore_bias"},
    {"0x5x7_sum"},
    {"0x5x7_sum_overwrite_bias"},
    {"3x0x7_bias"},
    {"1x1x1"},
    {"3x7x1_sum_smooth_z"},
    {"5x3x2_none"},
    {"7x13x15_none_ignore_bias_r2"},
    {"7x16x16_items_i32_r3_overwrite"},
    {"9x17x17_itemsi32_ignore_r1"},
    {"9x31x33_itemsf32_smooth_z_bias_c10"},
    {"12x33x127_ignore5_smooth_r5_c13_overwrite"},
    {"12x19x48_cap_c1"},
    {"12x19x63_sum_cap_ignore_dwf32_r1"},
    {"6x48x768_none_cap_smooth_z_ignore_i32_bias_r4_c100"},
    {"5x24x1025_none_smooth_nodloss_bias_r2_c1024", "rising"},
    {"9x20x2061_sum_ignore_bias_r4_c500", "masked"},
    {"7x12x1801_none_ignore_nodweight_nodbias_r2_c500", "NaN row"},
    {"7x12x2099_ignore", "ignored NaN"},
    {"5x12x1901_ignore", "all ignored"},
    {"5x9x40_sum_ignore_overwrite_r2_c7", "all ignored"},
    /* every subset of the gradients */
    {"11x14x37_nodhidden_r3_c10"},
    {"11x14x37_nodweight_r3_c10"},
    {"11x14x37_nodbias_r3_c10"},
    {"11x14x37_nodhidden_nodweight_r3_c10"},
    {"11x14x37_nodhidden_nodbias_r3_c10_overwrite"},
    {"11x14x37_nodweight_nodbias_r3_c10"},
    {"11x14x37_nodhidden_nodweight_nodbias"},
    /* several groups of rows in dbias, blocks of rows in dweight, of columns in dhidden */
    {"130x9x20_sum_smooth_bias"},
    {"391x7x26_sum_r130_bias_dwf32"},
    {"391x7x26_sum_r390_bias_overwrite"},
    {"9x33x1089_c1000"},
    {"4x768x130_dwf32_r3"},
    {"3x2880x20_none_r2"},
    {"9x70x50_wf32_bias_r4"},
    {"9x70x50_bias_bf32_dwf32_r4_c20"},
    {"9x1025x30_none_r4_c20"},
    {"2x8x50257_z"},
    {NULL},
};

static const spec_case fwdbwd_cases[] = {
    {"9x5x31_itemsi64_ignore_bias_all"},
    {"0x5x7_sum"},
    {"0x5x7_sum_overwrite_bias_all"},
    {"0x5x7_none"},
    {"3x0x7_bias"},
    {"1x1x1_all"},
    {"3x7x1_sum_smooth_z"},
    {"5x3x2_none_all"},
    {"7x13x15_none_ignore_bias_all_r2"},
    {"7x16x16_items_i32_r3_c16_overwrite"},
    {"9x17x17_itemsi32_ignore_r1_c16"},
    {"9x31x33_itemsf32_smooth_z_bias_all_c10"},
    {"12x33x127_ignore5_smooth_r5_c13_overwrite"},
    {"12x19x63_sum_cap_ignore_dwf32_r5"},
    {"6x48x768_none_cap_smooth_z_ignore_i32_bias_all_r4_c100"},
    {"5x24x1025_none_smooth_nodloss_bias_r2", "rising"},
    {"9x20x2061_sum_ignore_bias_r4", "masked"},
    {"7x12x1801_none_ignore_nodweight_nodbias_all_r2", "NaN row"},
    {"7x12x301_ignore_all_r3", "ignored NaN"},
    {"5x12x1901_ignore_all_overwrite", "all ignored"},
    {"11x14x37_nodhidden_r3"},
    {"11x14x37_nodweight_r3_c10"},
    {"11x14x37_nodbias_r3_overwrite"},
    {"11x14x37_nodhidden_nodweight_nodbias_r3_c10_all"},
    {"391x7x26_sum_r130_bias_dwf32"},
    {"4x768x130_dwf32_r3"},
    {"9x70x50_wf32_bias_r4"},
    {"9x1025x30_none_r4"},
    {"2x8x50257_z"},
    {NULL},
};

static const char *const bench_fwd[] = {"1024x768x50257", "1024x192x259", NULL};
static const char *const bench_bwd[] = {"1024x768x50257_dwf32_nodbias_overwrite", NULL};
static const char *const bench_fwdbwd[] = {
    "1024x768x50257_dwf32_nodbias_overwrite",
    "256x768x50257_dwf32_nodbias_overwrite",
    "2048x192x259_dwf32_nodbias_overwrite",
    NULL,
};

static const spec_bad_scalar bad_scalars[] = {
    LOSS_BAD_SCALARS,
    {"chunk_rows", -1, TG_BAD_ARGUMENT},
    {"chunk_cols", -1, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

const spec spec_linear_cross_entropy_fwd = {
    .name = "linear_cross_entropy_fwd",
    .cases = fwd_cases,
    .bench = bench_fwd,
    .f32_bound = 2e-6,
    .fill = fill_fwd,
    .batch_invariant = true,
    .bad_scalars = bad_scalars,
};

const spec spec_linear_cross_entropy_bwd = {
    .name = "linear_cross_entropy_bwd",
    .cases = bwd_cases,
    .bench = bench_bwd,
    .f32_bound = 3e-6,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .rounds_f32_outputs = true, /* the gradients of bf16 logits are bf16 */
    .gradient_of = "linear_cross_entropy_fwd",
    .fill = fill_bwd,
    .batch_invariant = true,
    .bad_scalars = bad_scalars,
};

const spec spec_linear_cross_entropy_fwdbwd = {
    .name = "linear_cross_entropy_fwdbwd",
    .cases = fwdbwd_cases,
    .bench = bench_fwdbwd,
    .f32_bound = 3e-6,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .rounds_f32_outputs = true, /* the gradients of bf16 logits are bf16 */
    .gradient_of = "linear_cross_entropy_fwd",
    .fill = fill_fwdbwd,
    .batch_invariant = true,
    .bad_scalars = bad_scalars,
};
