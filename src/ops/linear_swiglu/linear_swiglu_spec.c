#include "ops/linear_swiglu/linear_swiglu_refusals.h"

/* Sums over k of normal numbers have size sqrt(in): scaled weights keep gate and up near 1. */
static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const double in = (double)tgi_shaped_tensor(shaped, "x")->shape[1];
  (void)rng;
  spec_scale(shaped, "gate_weight", in > 0 ? 1 / sqrt(in) : 1, 0);
  spec_scale(shaped, "up_weight", in > 0 ? 1 / sqrt(in) : 1, 0);
  if (spec_is(c, "zeros")) {
    spec_set_all(shaped, "x", 0);
  } else if (spec_is(c, "wide")) { /* gate up to where silu's tail ends */
    spec_scale(shaped, "gate_weight", 20, 0);
  }
}

static const spec_case cases[] = {
    /* nothing to do, and nothing to sum */
    {"0x5x7"},
    {"3x5x0_save"},
    {"3x0x7"},
    {"70x0x8_save"},
    /* one row to five */
    {"1x1x1"},
    {"1x7x33_save"},
    {"2x67x65_once"},
    {"5x97x31_once_save"},
    /* ragged and prime extents */
    {"13x15x16_save", "wide"},
    {"23x19x31"},
    {"37x53x101_save"},
    {"65x75x129"},
    {"257x33x40_once_save"},
    /* dtypes side by side */
    {"9x70x50_wf32_save"},
    {"21x70x50_xf32"},
    {"7x20x36_save", "zeros"},
    /* whole vectors of 16 bytes, 1 to 64 rows: two products of few rows */
    {"1x64x136_save"},
    {"5x1032x264"},
    {"64x264x72_once_save"},
    /* more, in few tiles of 128 rows and 96 columns: two products and a pass */
    {"65x200x264_save", "wide"},
    {"300x136x136_once"},
    /* in 128 tiles or more: whole, and ended within by rows, by columns and by steps along k */
    {"128x16x12288_save"},
    {"65x8x12296"},
    {"129x72x6152_once_save", "wide"},
    {"257x24x6408"}, /* more tiles than multiprocessors */
    /* results whose rows are not whole vectors beside operands whose are */
    {"66x16x12300_save"},
    {NULL},
};

/* Qwen3 0.6B and 8B. */
static const char *const bench[] = {
    "256x1024x3072", "256x1024x3072_save", "1x1024x3072", "64x4096x12288_save", NULL,
};

static const spec_bad_scalar bad_scalars[] = {
    {"rounding", 0, TG_BAD_ARGUMENT},
    {"rounding", 3, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

static const spec_refusal refuses[] = {
    {.entry = "sm90",
     .rule = "f32",
     .reason = "the tiles are for 16-bit operands",
     .holds = tgi_linear_swiglu_has_f32},
    {.entry = "sm90",
     .rule = "rows of x or of weights whose start or size is not a multiple of 16 bytes",
     .reason = "tiles are copied by TMA, in vectors of 16 bytes",
     .holds = tgi_linear_swiglu_has_no_vectors},
    {.entry = "sm90",
     .rule = "more than 64 rows in fewer than 128 tiles of 128 rows and 96 columns",
     .reason = "they leave multiprocessors idle: two products and a pass are faster",
     .holds = tgi_linear_swiglu_is_small},
    {.entry = "sm90",
     .rule = "more than 64 rows of results whose start or size is not a multiple of 16 bytes",
     .reason = "tiles are stored in vectors of 16 bytes",
     .holds = tgi_linear_swiglu_has_no_result_vectors},
    {.entry = "sm90",
     .rule = "nothing to multiply",
     .reason = "TMA knows no empty tensors",
     .holds = tgi_linear_swiglu_is_empty},
    {.entry = NULL},
};

const spec spec_linear_swiglu_fwd = {
    .name = "linear_swiglu_fwd",
    .cases = cases,
    .bench = bench,
    .f32_bound = 4e-6,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .fill = fill,
    .batch_invariant = true,
    .rows_of_first_class = 64,
    .refuses = refuses,
    .bad_scalars = bad_scalars,
};
