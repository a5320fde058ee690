#include "ops/spec.h"

/* Every byte in turn, so that 16 rows of 256 groups have all codes at all scales. */
static void fill_all(tgi_shaped *shaped)
{
  const tg_tensor *blocks = tgi_shaped_tensor(shaped, "blocks");
  const int64_t groups = blocks->shape[1];
  for (int64_t i = 0; i < tgi_numel(blocks); i++) {
    spec_set(shaped, "blocks", i, (double)(i * 17 % 256 ^ (i / 16 % 16)));
  }
  for (int64_t i = 0; i < blocks->shape[0] * groups; i++) {
    spec_set(shaped, "scales", i, (double)(i % groups % 256));
  }
}

static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *blocks = tgi_shaped_tensor(shaped, "blocks");
  const tg_tensor *scales = tgi_shaped_tensor(shaped, "scales");
  if (spec_is(c, "all scales")) {
    fill_all(shaped);
    return;
  }
  for (int64_t i = 0; i < tgi_numel(blocks); i++) {
    spec_set(shaped, "blocks", i, (double)spec_below(rng, 256));
  }
  for (int64_t i = 0; i < tgi_numel(scales); i++) { /* those that f16 reaches */
    spec_set(shaped, "scales", i, (double)(104 + spec_below(rng, 37)));
  }
}

static const spec_case cases[] = {
    {"3x5"},
    {"0x2"},
    {"5x0"},
    {"1x1"},
    {"1x2"},
    {"7x3"},
    {"2x65"},
    {"5x90"},
    {"16x256", "all scales"},
    {"33x7", "all scales"},
    {"300x3"},
    {NULL},
};

static const char *const bench[] = {"5760x90", "2880x90", NULL};

const spec spec_dequantize_mxfp4_fwd = {
    .name = "dequantize_mxfp4_fwd",
    .cases = cases,
    .bench = bench,
    .bit_exact = true,
    .fill = fill,
    .batch_invariant = true,
};
