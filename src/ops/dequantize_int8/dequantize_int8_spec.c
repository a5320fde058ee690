#include "core/values/half.h"
#include "ops/spec.h"

static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *q = tgi_shaped_tensor(shaped, "q");
  const tg_tensor *scale = tgi_shaped_tensor(shaped, "scale");
  const tg_tensor *zero_point = tgi_shaped_tensor(shaped, "zero_point");
  for (int64_t i = 0; i < tgi_numel(q); i++) {
    spec_set(shaped, "q", i, (double)spec_below(rng, 256) - 128);
  }
  for (int64_t i = 0; i < tgi_numel(scale); i++) {
    const double s = fabs(tgi_load(scale->data, TG_F32, i)) * 0.02;
    spec_set(shaped, "scale", i, spec_is(c, "huge") ? s * 1e38 : s);
  }
  for (int64_t i = 0; tgi_present(zero_point) && i < tgi_numel(zero_point); i++) {
    const bool wide = spec_is(c, "far zero points"); /* what the quantiser never gives */
    spec_set(shaped, "zero_point", i,
             wide ? (double)spec_below(rng, 4000000001) - 2e9 : (double)spec_below(rng, 256) - 128);
  }
  if (spec_is(c, "not finite")) {
    spec_set(shaped, "scale", 0, NAN);
    spec_set(shaped, "scale", 1, (double)INFINITY);
  }
}

static const spec_case cases[] = {
    {"3x5_asym"},
    {"0x5"},
    {"4x0_asym"},
    {"1x1"},
    {"1x1_tensor_asymi8"},
    {"7x1_column_asym"},
    {"5x15_asymi8"},
    {"5x16_column"},
    {"6x17_tensor_asym"},
    {"3x31_column_asymi8"},
    {"9x63_column_asym"},
    {"9x64_tensor"},
    {"9x65_column_asymi8"},
    {"5x127_asym"},
    {"5x128"},
    {"7x129_column", "not finite"},
    {"7x130_asym", "not finite"},
    {"5x66_asym", "far zero points"},
    {"5x67_column_asym", "far zero points"},
    {"5x97", "huge"},
    {"5x98_column_asym", "huge"},
    {"5x256_tensor", "huge"},
    {"3x768_asym"},
    {"300x521_column_asymi8"},
    {"41x1024"},
    {NULL},
};

static const char *const bench[] = {"4096x4096", "12288x4096", "12288x4096_column_asym", NULL};

static const spec_bad_scalar bad[] = {
    {"granularity", 0, TG_BAD_ARGUMENT},
    {"granularity", 4, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

const spec spec_dequantize_int8_fwd = {
    .name = "dequantize_int8_fwd",
    .cases = cases,
    .bench = bench,
    .bit_exact = true,
    .fill = fill,
    .batch_invariant = true,
    .bad_scalars = bad,
};
