#include "ops/spec.h"

static void fill(tgi_shaped *shaped, const spec_case *c, spec_rng *rng)
{
  static const double kEdge[] = {0,     -0.0,   1.2785, -1.2785, 3,   -3,   16.6, -16.6,
                                 17.4,  -17.4,  40,     -40,     87,  -87,  88,   -88,
                                 88.75, -88.75, 89.5,   -89.5,   104, -104, 1e-4, -1e-4};
  (void)rng;
  if (spec_is(c, "wide")) { /* both flat ends and the bend */
    spec_scale(shaped, "x", 6, 0);
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
    spec_set(shaped, "x", 7000, -INFINITY);
  }
}

/* Widths around the lanes of each instruction set, the models' widths, pieces that end short. */
static const spec_case cases[] = {
    {"0x8"},
    {"3x0"},
    {"1x1", "one"},
    {"4x1"},
    {"3x2"},
    {"5x3"},
    {"5x15"},
    {"7x16"},
    {"1x17"},
    {"3x31"},
    {"33x48"},
    {"11x127", "wide"},
    {"3x128", "zeros"},
    {"3x37", "denormal"},
    {"2x61", "edges"},
    {"2x61", "huge"},
    {"3x768", "wide"},
    {"2x3072"},
    {"300x67"},
    {"3x7001", "not finite"}, /* above the size that finite differences take */
    {"41x1024"},              /* several pieces */
    {NULL},
};

static const char *const bench[] = {"8192x3072", "4096x12288", NULL};

const spec spec_silu_fwd = {
    .name = "silu_fwd",
    .cases = cases,
    .bench = bench,
    .f32_bound = 3e-7,
    .f16_ceiling = 2e-3,
    .bf16_ceiling = 1.6e-2,
    .fill = fill,
    .batch_invariant = true,
};

const spec spec_silu_bwd = {
    .name = "silu_bwd",
    .cases = cases,
    .bench = bench,
    .f32_bound = 1e-6,
    .f16_ceiling = 4e-3,
    .bf16_ceiling = 3e-2,
    .gradient_of = "silu_fwd",
    .fill = fill,
    .batch_invariant = true,
};
