#include "ops/linear_fp8_fp8/linear_fp8_fp8_refusals.h"

/* All codes but NaN, and scales that keep sums near 1. The special words are: nan_weight, nan_codes
 * and nan_scale (of a row of x), not_finite, zeros, tiny and large (x), ends (scales of W that are
 * 0, denormal, and 65504), sparse (few columns of x, the last among them), exact (small integers,
 * whose sums every tensor core has to the bit). */
static uint8_t code_of(const spec_case *c, spec_rng *rng)
{
  const uint8_t code = (uint8_t)spec_bits(rng);
  if (spec_is(c, "exact")) { /* -2, -1, 0, 1 or 2 */
    static const uint8_t codes[] = {0xc0, 0xb8, 0, 0x38, 0x40};
    return codes[code % 5];
  }
  return (code & 0x7f) == 0x7f ? (uint8_t)(code - 1) : code;
}

static void fill_codes(tgi_shaped *shaped, const char *slot, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *t = tgi_shaped_tensor(shaped, slot);
  for (int64_t i = 0, n = tgi_numel(t); i < n; i++) {
    ((uint8_t *)t->data)[i] = code_of(c, rng);
  }
}

static void fill_scales(tgi_shaped *shaped, const char *slot, double size, const spec_case *c,
                        spec_rng *rng)
{
  const tg_tensor *t = tgi_shaped_tensor(shaped, slot);
  for (int64_t i = 0, n = tgi_numel(t); i < n; i++) {
    const double v = (0.5 + (double)spec_below(rng, 1000) / 1000) / size;
    spec_set(shaped, slot, i, spec_is(c, "exact") ? 0.5 : v);
  }
}

static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *x = tgi_shaped_tensor(shaped, "x");
  const int64_t rows = x->shape[0], in = x->shape[1];
  const tg_tensor *weight = tgi_shaped_tensor(shaped, "weight");
  const int64_t out = weight->shape[0];
  const bool codes = x->dtype == TG_F8_E4M3;
  fill_codes(shaped, "weight", c, rng);
  fill_scales(shaped, "weight_scale", 130 * sqrt((double)in + 1), c, rng);
  if (codes) {
    fill_codes(shaped, "x", c, rng);
    fill_scales(shaped, "x_scale", 130, c, rng);
  }
  for (int64_t i = 0; i < rows * in && spec_is(c, "sparse"); i++) {
    if ((in - 1 - i % in) % 97 != 0) {
      spec_set(shaped, "x", i, 0);
    }
  }
  if (spec_is(c, "zeros")) {
    spec_set_all(shaped, "x", 0);
  } else if (spec_is(c, "large")) {
    spec_scale(shaped, "x", 1000, 0);
  } else if (spec_is(c, "tiny")) { /* of f32 below the least scale times 448 */
    spec_scale(shaped, "x", x->dtype == TG_F16 ? 0x1p-20 : 0x1p-122, 0);
  } else if (spec_is(c, "not_finite")) {
    spec_set(shaped, "x", 5, INFINITY);
    spec_set(shaped, "x", (rows - 1) * in + 2, NAN);
  } else if (spec_is(c, "nan_weight")) {
    ((uint8_t *)weight->data)[out / 2 * in + 1] = 0x7f;
    ((uint8_t *)weight->data)[out * in - 1] = 0xff;
  } else if (spec_is(c, "nan_codes")) {
    ((uint8_t *)x->data)[1] = 0xff;
    ((uint8_t *)x->data)[rows * in - 1] = 0x7f;
  } else if (spec_is(c, "nan_scale")) {
    spec_set(shaped, "x_scale", rows / 2, NAN);
  } else if (spec_is(c, "ends")) {
    spec_set(shaped, "weight_scale", 0, 0);
    spec_set(shaped, "weight_scale", out / 2, 0x1p-140);
    spec_set(shaped, "weight_scale", out - 1, codes ? 0x1p-130 : 65504.0 / 0x1p20);
  }
}

static const spec_case cases[] = {
    /* nothing to do, and nothing to sum */
    {"0x5x7_bias", NULL},
    {"3x5x0", NULL},
    {"3x0x7_bias", NULL},
    {"2x0x5_xf8_onescale", NULL},
    /* one row; edges of steps of 128, vectors of 16 and tiles */
    {"1x1x1", NULL},
    {"1x3x33_bias", NULL},
    {"1x15x17_xf8", NULL},
    {"1x16x16_xf8", NULL},
    {"1x127x31_onescale", NULL},
    {"1x129x129_bias", NULL},
    {"1x1031x19_bias", NULL},
    {"2x33x31_bias", NULL},
    {"3x67x65_xf8", NULL},
    {"5x131x34", NULL},
    {"7x383x64_bias", NULL},
    {"13x385x33_bias", NULL},
    {"23x19x65", NULL},
    /* rows of whole vectors, few: 8, 16, 32 and 64 of a tile; k in parts */
    {"8x144x136_xf8_bias", NULL},
    {"9x1040x96_xf8", NULL},
    {"16x2880x48", NULL},
    {"17x272x144_xf8_yf32", NULL},
    {"33x528x80_bias_bf32", NULL},
    {"64x128x136_xf8_onescale", NULL},
    /* many: tiles of 128 rows, whole and not */
    {"65x400x40_bias_bf32", NULL},
    {"97x32x48_xf8_bias", NULL},
    {"128x144x192_xf8", NULL},
    {"129x1040x24_bias", NULL},
    {"199x16x200_xf8_yf32", NULL},
    {"257x272x72_onescale_bias", NULL},
    {"300x144x520_xf8_bias", NULL},
    {"131x37x333_bias", NULL},
    {"70x1201x135", NULL},
    /* wide tiles, with whole rows of y and others */
    {"129x16x17000_xf8_bias", NULL},
    {"129x8x17005_bias", NULL},
    /* sums in the tensor core */
    {"66x272x264_xf8_fast", NULL},
    {"200x144x40_fast_bias", NULL},
    {"130x400x16_fast_yf32", NULL},
    {"5x144x36_fast", NULL},
    /* more rows of W than are widened at a time */
    {"3x20x1100_bias", NULL},
    {"5x37x2100_bias", NULL},
    {"2x18x2053_xf8_yf32", NULL},
    /* rows of x that are longer than a block of threads holds */
    {"2x8500x9", "sparse"},
    /* sums that are exact */
    {"9x272x64_xf8", "exact"},
    {"150x528x328_xf8_bias", "exact"},
    {"150x240x328_xf8_fast", "exact"},
    {"67x131x40_xf8", "exact"},
    /* special values */
    {"7x20x36_bias", "zeros"},
    {"80x160x48_bias", "zeros"},
    {"5x140x36", "large"},
    {"6x144x48_bias", "tiny"},
    {"4x24x34_bias", "not_finite"},
    {"76x48x40_bias", "not_finite"},
    {"5x144x36_bias", "nan_weight"},
    {"75x160x56", "nan_weight"},
    {"5x144x40_xf8", "nan_codes"},
    {"75x160x56_xf8_bias", "nan_codes"},
    {"7x144x40_xf8_bias", "nan_scale"},
    {"90x144x40_xf8", "nan_scale"},
    {"6x144x40_xf8_bias", "ends"},
    {"70x144x40", "ends"},
    {NULL, NULL},
};

/* A token, a batch of tokens, prompts. */
static const char *const bench[] = {
    "1x1024x3072",        "16x14336x4096",
    "128x8192x8192_xf8",  "512x1024x3072",
    "2048x8192x8192_xf8", "2048x8192x8192_xf8_fast",
    "4096x4096x4096_xf8", "4096x4096x4096",
    "8192x8192x8192_xf8", NULL,
};

static const spec_refusal refuses[] = {
    {.entry = "sm90",
     .rule = "x in f8_e4m3, weight or y with rows that do not begin at multiples of 16 bytes",
     .reason = "tiles are copied by TMA, in vectors of 16 bytes",
     .holds = tgi_linear_fp8_fp8_fwd_has_no_vectors},
    {.entry = "sm90",
     .rule = "`in` = 0",
     .reason = "there is nothing to multiply",
     .holds = tgi_linear_fp8_fp8_fwd_is_empty},
    {.entry = "sm90",
     .rule = "extents above 2^29",
     .reason = "indices of tiles are 32-bit",
     .holds = tgi_linear_fp8_fp8_fwd_is_large,
     .no_case = true},
    {.entry = NULL},
};

const spec spec_linear_fp8_fp8_fwd = {
    .name = "linear_fp8_fp8_fwd",
    .cases = cases,
    .bench = bench,
    .f32_bound = 2e-6,
    /* mma.sync cuts sums off, 2^-23 of them at most for each 16 of k: 180 times at 2880. */
    .sm80_f32_bound = 1e-5,
    .sm90_f32_bound = 1e-3, /* wgmma keeps some 14 bits of the sums of a step */
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .fill = fill,
    .batch_invariant = true,
    .rows_of_first_class = 64,
    .refuses = refuses,
};
