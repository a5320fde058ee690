#include "core/values/half.h"
#include "ops/spec.h"

static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  const tg_tensor *q = tgi_shaped_tensor(shaped, "q");
  const tg_tensor *scale = tgi_shaped_tensor(shaped, "scale");
  const tg_tensor *zero_point = tgi_shaped_tensor(shaped, "zero_point");
  for (int64_t i = 0; i < tgi_numel(q); i++) {
    spec_set(shaped, "q", i, (double)spec_below(rng, 256));
  }
  for (int64_t i = 0; i < tgi_numel(scale); i++) {
    const double s = fabs(tgi_load(scale->data, scale->dtype, i)) * 0.2;
    spec_set(shaped, "scale", i, spec_is(c, "huge") ? s * 2e38 : s);
  }
  for (int64_t i = 0; tgi_present(zero_point) && i < tgi_numel(zero_point); i++) {
    /* up to 255: what the quantiser never gives */
    spec_set(shaped, "zero_point", i,
             (double)spec_below(rng, spec_is(c, "far zero points") ? 256 : 16));
  }
  if (spec_is(c, "not finite")) {
    spec_set(shaped, "scale", 0, NAN);
    spec_set(shaped, "scale", 1, (double)INFINITY);
  }
}

static const spec_case cases[] = {
    {"3x64_asym"}, /* one more column is one more byte and group */
    {"0x64"},
    {"5x0_asym"},
    {"1x1"},
    {"1x1_asym"},
    {"3x2_sf16"},
    {"5x15_g128"},
    {"5x16_asym"},
    {"5x31_g64_sf16"},
    {"5x32_asym_sf16"},
    {"5x33"},
    {"5x47_asym"},
    {"5x63_g64"},
    {"5x65_g64_asym"},
    {"3x95_sf16"},
    {"3x127_g128_asym"},
    {"3x128_g128"},
    {"3x129_g128_sf16"},
    {"5x97", "huge"},
    {"5x98_g64_asym", "huge"},
    {"5x99_asym", "far zero points"},
    {"5x100_sf16", "not finite"},
    {"5x200_g64_asym", "not finite"},
    {"3x768_g128_asym_sf16"},
    {"2x2049"},
    {"2x4096_g64_asym"},
    {"2x5119_g128_sf16"},
    {"300x67_asym"},
    {NULL},
};

static const char *const bench[] = {"4096x4096_sf16", "12288x4096_g128_sf16",
                                    "12288x4096_g128_asym_sf16", "12288x4096", NULL};

static const spec_bad_scalar bad[] = {
    {"group_size", 0, TG_BAD_ARGUMENT},   {"group_size", -32, TG_BAD_ARGUMENT},
    {"group_size", 16, TG_BAD_ARGUMENT},  {"group_size", 96, TG_BAD_ARGUMENT},
    {"group_size", 256, TG_BAD_ARGUMENT}, {NULL, 0, TG_OK},
};

const spec spec_dequantize_int4_fwd = {
    .name = "dequantize_int4_fwd",
    .cases = cases,
    .bench = bench,
    .bit_exact = true,
    .fill = fill,
    .batch_invariant = true,
    .bad_scalars = bad,
};
