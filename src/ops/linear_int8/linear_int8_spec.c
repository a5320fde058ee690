#include "ops/linear_int8/linear_int8_refusals.h"

#include <stdlib.h>
#include <string.h>

/* Weights over all of their range, scales that keep sums near 1, and packs them. The special words
 * are: zero_points (i8), one_scale (and one i32 zero point), columns (rows of W that are constant,
 * zero and of one sign), zeros and large (x), not_finite (a row of x). */
static void fill_weight(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *x = tgi_shaped_tensor(shaped, "x"), *y = tgi_shaped_tensor(shaped, "y");
  const int64_t in = x->shape[1], out = y->shape[1], rows = spec_is(c, "one_scale") ? 1 : out;
  int8_t *w = malloc((size_t)(out * in + 1)), *zero_point = malloc((size_t)out + 1);
  float *scale = malloc((size_t)(rows + 1) * sizeof *scale);
  int32_t one_zero_point = -77;
  for (int64_t i = 0; i < out * in; i += 8) {
    const uint64_t bits = spec_bits(rng);
    memcpy(w + i, &bits, (size_t)(out * in - i < 8 ? out * in - i : 8));
  }
  for (int64_t o = 0; o < out; o++) {
    zero_point[o] = (int8_t)(spec_below(rng, 256) - 128);
    for (int64_t k = 0; spec_is(c, "columns") && k < in; k++) {
      int8_t *v = &w[o * in + k];
      *v = (int8_t)(o % 4 == 0 ? 0 : o % 4 == 1 ? 127 : o % 4 == 2 ? *v & 127 : *v | -128);
    }
  }
  for (int64_t o = 0; o < rows; o++) {
    scale[o] = (float)((0.5 + (double)spec_below(rng, 1000) / 1000) / 74 / sqrt((double)in + 1));
  }
  tg_tensor *packed = tgi_shaped_tensor(shaped, "weight");
  tg_linear_int8_pack_source a = {.weight = tg_tensor_2d(w, TG_I8, out, in),
                                  .scale = tg_tensor_1d(scale, TG_F32, rows),
                                  .packed = *packed};
  if (spec_is(c, "zero_points") || spec_is(c, "columns")) {
    a.zero_point = tg_tensor_1d(zero_point, TG_I8, out);
  } else if (spec_is(c, "one_scale")) {
    a.zero_point = tg_tensor_1d(&one_zero_point, TG_I32, 1);
  }
  tg_error error;
  if (tg_linear_int8_pack(&a, &error) != TG_OK) {
    fprintf(stderr, "%s\n", error.text);
    abort();
  }
  free(w);
  free(zero_point);
  free(scale);
}

static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  fill_weight(shaped, c, rng);
  if (spec_is(c, "zeros")) {
    spec_set_all(shaped, "x", 0);
  } else if (spec_is(c, "large")) {
    spec_scale(shaped, "x", 1000, 0);
  } else if (spec_is(c, "outlier")) {
    spec_set(shaped, "x", 3, 300);
  } else if (spec_is(c, "not_finite")) {
    spec_set(shaped, "x", 5, INFINITY);
    spec_set(shaped, "x", tgi_shaped_tensor(shaped, "x")->shape[1] + 2, NAN);
  }
}

static const spec_case cases[] = {
    /* nothing to do, and nothing to sum */
    {"0x5x7_bias", NULL},
    {"3x5x0", NULL},
    {"3x0x7_bias", NULL},
    {"2x0x5_dynamic", NULL},
    /* one row; edges of steps of 4, blocks of 32, panels of 32 */
    {"1x1x1", NULL},
    {"1x1x1_dynamic", NULL},
    {"1x3x33_bias", NULL},
    {"1x7x31_dynamic_bias", NULL},
    {"1x15x17", "zero_points"},
    {"1x17x15_dynamic", "zero_points"},
    {"1x127x129_bias", NULL},
    {"1x129x127_dynamic", NULL},
    {"1x1031x19", "one_scale"},
    {"2x31x33_dynamic_bias", "one_scale"},
    /* ragged strips: 1, 2, 4, 3, 6 and 12 rows */
    {"2x33x31_bias", NULL},
    {"3x67x65", "zero_points"},
    {"4x64x32_bias", NULL},
    {"5x31x34", NULL},
    {"7x97x64_bias", "one_scale"},
    {"13x13x40_dynamic_bias", NULL},
    {"11x16x33_dynamic", "zero_points"},
    {"12x36x96_dynamic", NULL},
    {"25x53x101_dynamic_bias", "zero_points"},
    {"23x19x65_bias", "zero_points"},
    {"37x129x70_dynamic", NULL},
    /* more than one task of rows, and of panels */
    {"241x20x40_bias", "zero_points"},
    {"253x24x70_dynamic", "zero_points"},
    {"487x9x33_dynamic_bias", NULL},
    {"3x48x1100_bias", NULL},
    {"14x1201x135_dynamic", "zero_points"},
    /* more than one block of sums */
    {"2x32780x3", "zero_points"},
    {"1x65551x2_dynamic", "columns"},
    /* real widths */
    {"6x48x144_bias", NULL},
    {"5x768x130_dynamic_bias", NULL},
    {"3x1024x98", NULL},
    {"2x2880x50_dynamic", NULL},
    /* rows of whole vectors, as tensor cores take them: strips of 8, 16 and 32, then many */
    {"1x136x70_bias", "zero_points"},
    {"9x1032x98", NULL},
    {"9x1032x98_dynamic", NULL},
    {"17x264x65_dynamic_bias", "zero_points"},
    {"64x128x130_yf32", "zero_points"},
    {"65x392x33_bias_bf32", NULL},
    {"300x264x96_bias", "zero_points"},
    /* blocks of 128 outputs: strips of 32 and 64 rows, by one block and by two */
    {"33x136x2800_bias", "zero_points"},
    {"17x264x5640", NULL},
    {"64x136x4330_yf32", "zero_points"},
    {"190x1160x2900_bias", NULL},
    {"4x24x34_bias", "not_finite"},
    /* dynamic, many rows: tiles of 128 rows by 128 and 256 columns, whole and not; rows of x that
     * are longer than a block of threads holds */
    {"64x48x40_dynamic", NULL},
    {"65x16x40_dynamic", "zero_points"},
    {"128x48x40_dynamic", NULL},
    {"129x17x48_dynamic_bias", NULL},
    {"257x1031x72_dynamic_bias_bf32", "zero_points"},
    {"300x144x520_dynamic_bias", "zero_points"},
    {"131x72x44_dynamic_yf32", "zero_points"},
    {"195x131x136_dynamic", "columns"},
    {"129x16x8456_dynamic_bias", "zero_points"},
    {"129x8x8461_dynamic_bias", NULL},
    {"130x8500x8_dynamic_bias", NULL},
    {"150x24x32_dynamic_bias", "zeros"},
    {"140x40x48_dynamic", "outlier"},
    {"133x21x40_dynamic_bias", "not_finite"},
    /* dtypes side by side */
    {"9x70x50_bias_bf32", NULL},
    {"3x70x50_yf32_bias", "zero_points"},
    {"21x70x50_dynamic_yf32_bias_bf32", NULL},
    /* special values */
    {"7x20x36_bias", "zeros"},
    {"7x20x36_dynamic_bias", "zeros"},
    {"5x40x36", "large"},
    {"5x40x36_dynamic", "outlier"},
    {"5x40x36_bias", "outlier"},
    {"6x45x37_bias", "columns"},
    {"6x45x37_dynamic", "columns"},
    {"4x21x34_bias", "not_finite"},
    {"14x21x34_dynamic", "not_finite"},
    {NULL, NULL},
};

/* One token against weights larger than the cache; then a prompt. */
static const char *const bench[] = {
    "1x1024x3072",           "1x14336x4096",          "4x14336x4096",           "512x1024x3072",
    "512x1024x3072_dynamic", "512x4096x4096_dynamic", "1x14336x4096_dynamic",   "16x14336x4096",
    "128x8192x8192",         "128x8192x8192_dynamic", "8192x8192x8192_dynamic", NULL,
};

static const spec_bad_scalar bad_scalars[] = {
    {"mode", 0, TG_BAD_ARGUMENT},
    {"mode", 3, TG_BAD_ARGUMENT},
    {"mode", -1, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

static const spec_refusal refuses[] = {
    TGI_QUANTISED_REFUSALS(linear_int8, "weight-only mode: "),
    {.entry = "sm90",
     .rule = "dynamic mode: fewer than 129 rows",
     .reason = "sm80 multiplies them in less time than a weight in rows takes to make",
     .holds = tgi_linear_int8_fwd_few_rows},
    {.entry = "sm90",
     .rule = "dynamic mode: `in` = 0",
     .reason = "there is nothing to multiply",
     .holds = tgi_linear_int8_fwd_is_empty},
    {.entry = "sm90",
     .rule = "dynamic mode: `in` above 2^16",
     .reason = "sums less their zero points could leave 32 bits",
     .holds = tgi_linear_int8_fwd_long_rows},
    {.entry = "sm90",
     .rule = "dynamic mode: weight, or rows of y, that do not begin at multiples of 16 bytes",
     .reason = "they are read, and copied by TMA, in vectors of 16 bytes",
     .holds = tgi_linear_int8_fwd_no_tile_vectors},
    {.entry = "sm90",
     .rule = "dynamic mode: rows or `out` above 2^29",
     .reason = "indices of tiles are 32-bit",
     .holds = tgi_linear_int8_fwd_is_large,
     .no_case = true},
    {.entry = NULL},
};

const spec spec_linear_int8_fwd = {
    .name = "linear_int8_fwd",
    .cases = cases,
    .bench = bench,
    .f32_bound = 2e-6,
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .fill = fill,
    .batch_invariant = true,
    .refuses = refuses,
    .bad_scalars = bad_scalars,
};
