#include "ops/quantised_refusals.h"
#include "ops/spec.h"

#include <stdlib.h>
#include <string.h>

/* All codes but NaN, scales that keep sums near 1, packed. The special words are: one_scale, nan (a
 * weight), tiny (denormal weights), zeros, large and not_finite (x). */
static void fill_weight(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *x = tgi_shaped_tensor(shaped, "x"), *y = tgi_shaped_tensor(shaped, "y");
  const int64_t in = x->shape[1], out = y->shape[1], n = out * in;
  const int64_t rows = spec_is(c, "one_scale") ? 1 : out;
  const int64_t blocks = spec_is(c, "one_scale") ? 1 : (in + 127) / 128;
  uint8_t *w = malloc((size_t)n + 1);
  float *scale = malloc((size_t)(rows * blocks + 1) * sizeof *scale);
  const double size = spec_is(c, "tiny") ? 0.01 : 130;
  for (int64_t i = 0; i < n; i += 8) {
    const uint64_t bits = spec_bits(rng);
    memcpy(w + i, &bits, (size_t)(n - i < 8 ? n - i : 8));
  }
  for (int64_t i = 0; i < n; i++) {
    w[i] = (uint8_t)(spec_is(c, "tiny") ? w[i] & 0x87 : (w[i] & 0x7f) == 0x7f ? w[i] - 1 : w[i]);
  }
  if (spec_is(c, "nan")) {
    w[n / 2] = 0x7f;
    w[n - 1] = 0xff;
  }
  for (int64_t i = 0; i < rows * blocks; i++) {
    scale[i] = (float)((0.5 + (double)spec_below(rng, 1000) / 1000) / size / sqrt((double)in + 1));
  }
  const tg_linear_fp8_pack_source a = {.weight = tg_tensor_2d(w, TG_F8_E4M3, out, in),
                                       .scale = tg_tensor_2d(scale, TG_F32, rows, blocks),
                                       .packed = *tgi_shaped_tensor(shaped, "weight")};
  tg_error error;
  if (tg_linear_fp8_pack(&a, &error) != TG_OK) {
    fprintf(stderr, "%s\n", error.text);
    abort();
  }
  free(w);
  free(scale);
}

static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  fill_weight(shaped, c, rng);
  if (spec_is(c, "zeros")) {
    spec_set_all(shaped, "x", 0);
  } else if (spec_is(c, "large")) {
    spec_scale(shaped, "x", 1000, 0);
  }
}

static const spec_case cases[] = {
    /* nothing to do, and nothing to sum */
    {"0x5x7_bias", NULL},
    {"3x5x0", NULL},
    {"3x0x7_bias", NULL},
    {"2x0x5", "one_scale"},
    /* one row; edges of blocks of 128 and panels of 32 */
    {"1x1x1", NULL},
    {"1x3x33_bias", "one_scale"},
    {"1x15x17", NULL},
    {"1x127x31", NULL},
    {"1x128x32_bias", NULL},
    {"1x129x129", NULL},
    {"1x257x65", "one_scale"},
    {"1x1031x19_bias", NULL},
    /* ragged tiles of 4, 6 and 12 rows; sections of 384 columns */
    {"2x33x31_bias", NULL},
    {"3x67x65", NULL},
    {"4x64x32_bias", "one_scale"},
    {"5x131x34", NULL},
    {"7x383x64_bias", NULL},
    {"12x384x40", NULL},
    {"13x385x33_bias", NULL},
    {"23x19x65", NULL},
    {"37x513x70", "one_scale"},
    /* more than one task of rows, and of panels */
    {"97x20x40_bias", NULL},
    {"199x9x33", NULL},
    {"3x48x1500_bias", NULL},
    {"5x1201x135", NULL},
    /* real widths */
    {"6x48x144_bias", NULL},
    {"5x768x130_bias", NULL},
    {"3x1024x98", NULL},
    {"2x2880x50", NULL},
    /* rows of whole vectors, as tensor cores take them: strips of 8, 16 and 32, then many */
    {"1x136x70_bias", NULL},
    {"9x1032x98", "one_scale"},
    {"17x264x65_bias", NULL},
    {"64x128x130_yf32", NULL},
    {"65x392x33_bias_bf32", NULL},
    {"300x264x96_bias", NULL},
    /* blocks of 128 outputs: strips of 32 and 64 rows, by one block and by two */
    {"33x136x2800_bias", NULL},
    {"17x264x5640", "one_scale"},
    {"64x136x4330_yf32", NULL},
    {"190x1160x2900_bias", NULL},
    {"5x144x36_bias", "tiny"},
    {"5x144x36_bias", "nan"},
    /* dtypes side by side */
    {"9x170x50_bias_bf32", NULL},
    {"3x170x50_yf32_bias", NULL},
    {"6x70x50_yf32_bias_bf32", NULL},
    /* special values */
    {"7x20x36_bias", "zeros"},
    {"5x140x36", "large"},
    {"5x140x36_bias", "tiny"},
    {"5x140x36_bias", "nan"},
    {NULL, NULL},
};

/* One token against weights larger than the cache; then a prompt. */
static const char *const bench[] = {
    "1x1024x3072",   "1x14336x4096",  "4x14336x4096", "16x14336x4096",
    "128x8192x8192", "512x1024x3072", NULL,
};

TGI_QUANTISED_RULES(linear_fp8, true)
static const spec_refusal refuses[] = {TGI_QUANTISED_REFUSALS(linear_fp8, ""), {.entry = NULL}};

const spec spec_linear_fp8_fwd = {
    .name = "linear_fp8_fwd",
    .cases = cases,
    .bench = bench,
    .f32_bound = 2e-6,
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .fill = fill,
    .batch_invariant = true,
    .refuses = refuses,
};
