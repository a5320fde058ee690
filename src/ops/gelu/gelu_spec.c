#include "ops/spec.h"

static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  static const double kEdge[] = {0,  -0.0, 0.7517, -0.7517, 3,    -3,    5.5, -5.5, 9.875, -9.875,
                                 11, -11,  11.25,  -11.25,  14.5, -14.5, 40,  -40,  1e-4,  -1e-4};
  (void)rng;
  if (spec_is(c, "wide")) { /* both flat ends and the bend */
    spec_scale(shaped, "x", 4, 0);
  } else if (spec_is(c, "zeros")) {
    spec_set_all(shaped, "x", 0);
  } else if (spec_is(c, "one")) { /* a single output must not be one that vanishes */
    spec_set_all(shaped, "x", 1);
  } else if (spec_is(c, "denormal")) {
    spec_scale(shaped, "x", 1e-39, 0);
  } else if (spec_is(c, "huge")) {
    spec_scale(shaped, "x", 1e4, 0);
  } else if (spec_is(c, "edges")) {
    for (size_t i = 0; i < sizeof kEdge / sizeof kEdge[0]; i++) {
      spec_set(shaped, "x", (int64_t)i, kEdge[i]);
    }
  } else if (spec_is(c, "not finite")) { /* limits; NaN stays where it is */
    spec_set(shaped, "x", 0, INFINITY);
    spec_set(shaped, "x", 5, -INFINITY);
    spec_set(shaped, "x", 18, NAN);
    spec_set(shaped, "x", 35, -1e4); /* shut: no gradient passes, not even an infinite one */
    spec_set_infinite_dy(shaped, 35);
  }
}

/* Widths around the lanes of each instruction set, the models' widths, pieces that end short. */
static const spec_case cases[] = {
    {"0x8"},
    {"3x0"},
    {"1x1", "one"},
    {"1x1_erf", "one"},
    {"4x1"},
    {"3x2_erf"},
    {"5x3"},
    {"5x15"},
    {"7x16_erf"},
    {"1x17"},
    {"33x48_erf"},
    {"11x127", "wide"},
    {"11x127_erf", "wide"},
    {"3x128", "zeros"},
    {"3x31_erf", "zeros"},
    {"3x37", "denormal"},
    {"3x37_erf", "denormal"},
    {"2x61", "edges"},
    {"2x61_erf", "edges"},
    {"2x61", "huge"},
    {"2x61_erf", "huge"},
    {"3x768", "wide"},
    {"2x3072_erf", "wide"},
    {"2x5120"},
    {"300x67_erf"},
    {"3x7001", "not finite"}, /* above the size that finite differences take */
    {"3x7001_erf", "not finite"},
    {"41x1024"}, /* several pieces */
    {NULL},
};

static const char *const bench[] = {"65536x768", "65536x768_erf", "16384x4096", NULL};

static const spec_bad_scalar bad[] = {
    {"approximation", 0, TG_BAD_ARGUMENT},
    {"approximation", 3, TG_BAD_ARGUMENT},
    {NULL, 0, TG_OK},
};

const spec spec_gelu_fwd = {
    .name = "gelu_fwd",
    .cases = cases,
    .bench = bench,
    .f32_bound = 5e-7,
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .fill = fill,
    .batch_invariant = true,
    .bad_scalars = bad,
};

const spec spec_gelu_bwd = {
    .name = "gelu_bwd",
    .cases = cases,
    .bench = bench,
    .f32_bound = 1e-6,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .gradient_of = "gelu_fwd",
    .fill = fill,
    .batch_invariant = true,
    .bad_scalars = bad,
};
