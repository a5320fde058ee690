#include "core/values/half.h"
#include "ops/quantised_refusals.h"
#include "ops/spec.h"

#include <stdlib.h>
#include <string.h>

static bool has_word(const spec_case *c, const char *word)
{
  const char *found = strstr(c->shape, word);
  return found && (found[strlen(word)] == '_' || found[strlen(word)] == 0);
}

/* Weights over all of their range and scales that keep sums near 1, packed. The special words are:
 * columns (rows of W that are constant, zero and of one sign), zeros, large and outlier (x),
 * not_finite (a row of x). */
static void fill_weight(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *x = tgi_shaped_tensor(shaped, "x"), *y = tgi_shaped_tensor(shaped, "y");
  const int64_t in = x->shape[1], out = y->shape[1], row_bytes = (in + 1) / 2;
  const int64_t group_size = has_word(c, "_g32") ? 32 : has_word(c, "_g64") ? 64 : 128;
  const int64_t groups = (in + group_size - 1) / group_size, count = out * groups;
  const tg_dtype scale_dtype = has_word(c, "_sf16") ? TG_F16 : TG_F32;
  uint8_t *w = malloc((size_t)(out * row_bytes + 1)), *zero_point = malloc((size_t)count + 1);
  float *scale = malloc((size_t)(count + 1) * sizeof *scale);
  for (int64_t i = 0; i < out * row_bytes; i += 8) {
    const uint64_t bits = spec_bits(rng);
    memcpy(w + i, &bits, (size_t)(out * row_bytes - i < 8 ? out * row_bytes - i : 8));
  }
  for (int64_t i = 0; spec_is(c, "columns") && i < out * row_bytes; i++) {
    const int64_t o = i / row_bytes;
    w[i] = (uint8_t)(o % 4 == 0   ? 0x88
                     : o % 4 == 1 ? 0xff
                     : o % 4 == 2 ? w[i] | 0x88
                                  : w[i] & 0x77);
  }
  for (int64_t i = 0; i < count; i++) {
    zero_point[i] = (uint8_t)spec_below(rng, 16);
    const double s = (0.5 + (double)spec_below(rng, 1000) / 1000) / 5 / sqrt((double)in + 1);
    tgi_store(scale, scale_dtype, i, s);
  }
  tg_linear_int4_pack_source a = {.weight = tg_tensor_2d(w, TG_U8, out, row_bytes),
                                  .scale = tg_tensor_2d(scale, scale_dtype, out, groups),
                                  .packed = *tgi_shaped_tensor(shaped, "weight"),
                                  .in = in,
                                  .group_size = group_size};
  if (has_word(c, "_zp")) {
    a.zero_point = tg_tensor_2d(zero_point, TG_U8, out, groups);
  }
  tg_error error;
  if (tg_linear_int4_pack(&a, &error) != TG_OK) {
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
  } else if (spec_is(c, "positive")) {
    spec_scale(shaped, "x", 0.25, 2);
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
    /* one row; edges of lines of 8, groups and panels of 32 */
    {"1x1x1_g32", NULL},
    {"1x3x33_g64_bias", NULL},
    {"1x15x17_g32_zp", NULL},
    {"1x31x31_g32_sf16", NULL},
    {"1x33x34_g32_sf16_zp", NULL},
    {"1x64x32_g64", NULL},
    {"1x127x129_bias", NULL},
    {"1x129x127_sf16", NULL},
    {"1x257x65_zp_sf16_bias", NULL},
    {"1x1031x19_g64_zp", NULL},
    /* ragged strips: 1, 2, 3 and 4 rows */
    {"2x33x31_g32_zp_bias", NULL},
    {"3x67x65_g64", NULL},
    {"4x65x32_g64_sf16_bias", NULL},
    {"5x131x34_zp", NULL},
    {"7x97x64_g32_sf16_zp_bias", NULL},
    {"13x130x40_bias", NULL},
    {"23x19x65_g32", NULL},
    {"37x129x70_sf16", NULL},
    /* more than one task of rows, and of panels */
    {"241x20x40_g32_zp_bias", NULL},
    {"483x9x33_g64_sf16", NULL},
    {"3x48x1100_g32_sf16_bias", NULL},
    {"5x1201x135_g32_zp", NULL},
    {"2x4111x70_sf16_zp", NULL},
    /* real widths */
    {"6x48x144_g32_sf16_bias", NULL},
    {"5x768x130_g128_bias", NULL},
    {"3x1024x98_g64_sf16", NULL},
    {"2x2880x50_g32_zp", NULL},
    /* rows of whole vectors, as tensor cores take them: strips of 8, 16 and 32, then many */
    {"1x136x70_g32_zp_bias", NULL},
    {"9x1032x98_g64_sf16", NULL},
    {"17x264x65_bias", NULL},
    {"33x2880x40_sf16_zp", NULL},
    {"64x128x130_g32_yf32", NULL},
    {"65x392x33_g64_zp_bias_bf32", NULL},
    {"300x264x96_g32_sf16_bias", NULL},
    /* blocks of 128 outputs: strips of 32 and 64 rows, by one block and by two */
    {"33x136x2800_zp_bias", NULL},
    {"17x264x5640_g32_sf16", NULL},
    {"65x392x1870_g64_zp_bias_bf32", NULL},
    {"64x136x4330_sf16_zp", NULL},
    {"190x1160x2900_g64_yf32", NULL},
    {"5x304x36_zp_bias", "columns"},
    {"4x24x34_g32_bias", "not_finite"},
    /* dtypes side by side */
    {"9x70x50_g32_bias_bf32", NULL},
    {"3x170x50_zp_yf32_bias", NULL},
    {"6x70x50_g64_sf16_yf32_bias_bf32", NULL},
    /* special values */
    {"7x20x36_g32_bias", "zeros"},
    {"5x140x36_zp", "large"},
    {"5x140x36_sf16", "outlier"},
    {"5x300x36_zp", "positive"},
    {"5x300x36_g32", "positive"},
    {"6x45x37_g32_bias", "columns"},
    {"6x145x37_zp", "columns"},
    {"4x21x34_g32_bias", "not_finite"},
    {NULL, NULL},
};

/* One token against weights larger than the cache; then a prompt. */
static const char *const bench[] = {
    "1x1024x3072_g32_sf16",      "1x1024x3072_g128_sf16",
    "1x14336x4096_g32_sf16",     "1x14336x4096_g128_sf16",
    "1x14336x4096_g128_sf16_zp", "16x14336x4096_g128_sf16",
    "64x14336x4096_g128_sf16",   "128x8192x8192_g128_sf16",
    "512x1024x3072_g32_sf16",    NULL,
};

TGI_QUANTISED_RULES(linear_int4, true)
static const spec_refusal refuses[] = {TGI_QUANTISED_REFUSALS(linear_int4, ""), {.entry = NULL}};

const spec spec_linear_int4_fwd = {
    .name = "linear_int4_fwd",
    .cases = cases,
    .bench = bench,
    .f32_bound = 2e-6,
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .fill = fill,
    .batch_invariant = true,
    .refuses = refuses,
};
