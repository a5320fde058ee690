/* The vector words of src/cpu against f64, value by value: exp, tanh, GELU and SiLU and their
 * derivatives, and the conversions between f32 and the 16-bit formats, for every instruction set of
 * this machine.
 *
 *   test_math               one f32 in 1021, and all near the places where something changes
 *   test_math --exhaustive  all 2^32
 *
 * Prints the largest error of each function. */
#include "math_lanes.h"

#include "core/half.h"
#include "core/threads.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { kBatch = 4096, kStep = 1021, kNear = 64, kChunks = 256 };

static uint64_t step = kStep;

static const math_lanes *entries[MATH_ENTRIES];
static int num_entries;

/* ---- functions ---- */

static const double kPi = 3.14159265358979323846;

static double gelu_tanh(double x)
{
  const double u2 = 2 * sqrt(2 / kPi) * (x + 0.044715 * x * x * x);
  return isinf(x) ? fmax(x, 0) : x / (1 + exp(-u2));
}

/* Through the tail q = 1 / (1 + e^(2u)) at |x|, in which nothing cancels. */
static double gelu_tanh_grad(double x)
{
  const double a = fabs(x), u2 = 2 * sqrt(2 / kPi) * (a + 0.044715 * a * a * a);
  const double slope = 2 * sqrt(2 / kPi) * (1 + 3 * 0.044715 * a * a);
  const double e = exp(-u2), q = e / (1 + e);
  const double d = q > 0 ? q * (1 - a * slope * (1 - q)) : 0;
  return x < 0 ? d : 1 - d;
}

static double gelu_erf(double x)
{
  return isinf(x) ? fmax(x, 0) : 0.5 * x * erfc(-x / sqrt(2));
}

static double gelu_erf_grad(double x)
{
  const double a = fabs(x), bell = exp(-a * a / 2) / sqrt(2 * kPi);
  const double d = bell > 0 ? 0.5 * erfc(a / sqrt(2)) - a * bell : 0;
  return x < 0 ? d : 1 - d;
}

static double logistic(double x)
{
  return x < -88.72284 ? 0 : 1 / (1 + exp(-x)); /* where exp(-x) overflows f32 */
}

static double silu(double x)
{
  return isinf(x) ? fmax(x, 0) : x * logistic(x);
}

/* Nothing cancels in 1 - s = s(-x). */
static double silu_grad(double x)
{
  const double s = 1 / (1 + exp(-x)), rest = 1 / (1 + exp(x));
  return isinf(x) ? x > 0 : s * (1 + x * rest);
}

/* Errors are in units in the last place of max(|exact|, floor). fused, plain: the bounds that the
 * headers state, with and without a fused multiply-add. */
typedef struct function_case {
  const char *name;
  math_function function;
  double (*exact)(double x);
  double floor, fused, plain;
} function_case;

static const function_case functions[] = {
    {"exp", MATH_EXP, exp, 0x1p-126, 0.9, 1.2},
    {"tanh", MATH_TANH, tanh, 0x1p-126, 2.5, 2.5},
    {"gelu_tanh", MATH_GELU_TANH, gelu_tanh, 0x1p-10, 9, 16},
    {"gelu_tanh_grad", MATH_GELU_TANH_GRAD, gelu_tanh_grad, 0.5, 2, 2},
    {"gelu_erf", MATH_GELU_ERF, gelu_erf, 0x1p-10, 11, 18},
    {"gelu_erf_grad", MATH_GELU_ERF_GRAD, gelu_erf_grad, 0.5, 2, 2},
    {"silu", MATH_SILU, silu, 0x1p-126, 2.5, 3},
    {"silu_grad", MATH_SILU_GRAD, silu_grad, 0.5, 3, 3.5},
    {"silu_grad_bf16", MATH_SILU_GRAD_BF16, silu_grad, 0.5, 3, 3.5},
    {"silu_beside_grad", MATH_SILU_BESIDE_GRAD, silu, 0x1p-95, 2.5, 3},
    {"logistic", MATH_LOGISTIC, logistic, 0x1p-126, 2.5, 2.5},
};

enum { kFunctions = sizeof functions / sizeof functions[0] };

/* Where a function bends, saturates, overflows or underflows. */
static const float kPlaces[] = {
    0,    0x1p-149f, 0x1p-126f, 0x1p-14f, 0x1p-3f, 0.1733f, 0.3466f, 0.75f,    1,       2,
    5.5f, 8.66f,     9.01f,     10,       11,      13.2f,   14.4f,   87,       87.34f,  88.72f,
    89,   103.28f,   104,       105,      65504,   65520,   65536,   0x1p127f, INFINITY};

typedef struct worst {
  double error;
  float at, got;
} worst;

static double clamp(double v)
{
  const double limit = 0x1p128; /* what an infinite f32 stands for */
  return v > limit ? limit : v < -limit ? -limit : v;
}

/* 1 / (the last place of an f32 of this magnitude), for magnitudes from 2^-126 on. */
static double places_per_unit(double magnitude)
{
  uint64_t bits;
  double v;
  memcpy(&bits, &magnitude, sizeof bits);
  bits = (2046 + 23 - (bits >> 52)) << 52;
  memcpy(&v, &bits, sizeof v);
  return v;
}

static void check_batch(const function_case *f, const float *x, int n, worst *worsts)
{
  float y[MATH_ENTRIES][kBatch];
  for (int e = 0; e < num_entries; e++) {
    entries[e]->map[f->function](x, y[e], kBatch);
  }
  for (int i = 0; i < n; i++) {
    const double exact = isnan(x[i]) ? NAN : clamp(f->exact((double)x[i]));
    const double magnitude = fabs(exact) > f->floor ? fabs(exact) : f->floor;
    const double scale = places_per_unit(magnitude < 0x1p128 ? magnitude : 0x1p127);
    for (int e = 0; e < num_entries; e++) {
      const double error = fabs(clamp((double)y[e][i]) - exact) * scale;
      const bool both_nan = isnan(exact) && isnan(y[e][i]);
      if (!(error <= worsts[e].error) && !both_nan) {
        worsts[e] = (worst){isnan(error) ? (double)INFINITY : error, x[i], y[e][i]};
      }
    }
  }
}

typedef struct sweep {
  const function_case *f;
  worst worsts[kChunks + 1][MATH_ENTRIES];
} sweep;

/* Chunk c holds the bit patterns [c, c + 1) * 2^24. */
static void sweep_chunk(void *arg, int64_t begin, int64_t end, int thread)
{
  sweep *s = arg;
  float x[kBatch] = {0};
  (void)thread;
  for (int64_t c = begin; c < end; c++) {
    const uint64_t last = (uint64_t)(c + 1) << 24;
    uint64_t bits = ((uint64_t)c << 24) + (step - ((uint64_t)c << 24) % step) % step;
    while (bits < last) {
      int n = 0;
      for (; n < kBatch && bits < last; n++, bits += step) {
        x[n] = tgi_bits_float((uint32_t)bits);
      }
      check_batch(s->f, x, n, s->worsts[c]);
    }
  }
}

static void check_places(sweep *s)
{
  float x[kBatch] = {0};
  for (size_t p = 0; p < sizeof kPlaces / sizeof kPlaces[0]; p++) {
    int n = 0;
    for (int k = -kNear; k <= kNear; k++) {
      const uint32_t bits = tgi_float_bits(kPlaces[p]) + (uint32_t)k;
      x[n++] = tgi_bits_float(bits & 0x7fffffffu);
      x[n++] = tgi_bits_float(bits | 0x80000000u);
    }
    check_batch(s->f, x, n, s->worsts[kChunks]);
  }
}

/* Number of entries that break their bound. */
static int check_function(const function_case *f)
{
  int broken = 0;
  static sweep s;
  s = (sweep){.f = f};
  tgi_parallel_for(tgi_default_threads(), kChunks, 1, sweep_chunk, &s);
  check_places(&s);
  for (int e = 0; e < num_entries; e++) {
    worst w = {0};
    for (int c = 0; c <= kChunks; c++) {
      w = s.worsts[c][e].error > w.error ? s.worsts[c][e] : w;
    }
    const double bound = entries[e] == &math_lanes_generic ? f->plain : f->fused;
    printf("%-16s %-8s %8.3f ulp at %.9g, bound %g\n", f->name, entries[e]->entry, w.error,
           (double)w.at, bound);
    if (!(w.error <= bound)) {
      print_error("%s %s(%.9g): expected %.9g, got %.9g: %.3f ulp, bound %g\n", entries[e]->entry,
                  f->name, (double)w.at, f->exact((double)w.at), (double)w.got, w.error, bound);
      broken++;
    }
  }
  return broken;
}

static void test_functions(void **state)
{
  int broken = 0;
  (void)state;
  for (int i = 0; i < kFunctions; i++) {
    broken += check_function(&functions[i]);
  }
  assert_int_equal(broken, 0);
}

/* Saturated ends are exact, signs survive. */
static void test_ends(void **state)
{
  static const struct {
    math_function function;
    float x, y;
  } ends[] = {
      {MATH_EXP, 0, 1},
      {MATH_EXP, 88.8f, INFINITY},
      {MATH_EXP, -104, 0},
      {MATH_EXP, -INFINITY, 0},
      {MATH_TANH, 10, 1},
      {MATH_TANH, -INFINITY, -1},
      {MATH_TANH, -0.0f, -0.0f},
      {MATH_TANH, -0x1p-149f, -0x1p-149f},
      {MATH_GELU_TANH, -0x1p100f, 0},
      {MATH_GELU_TANH, 0x1p100f, 0x1p100f},
      {MATH_GELU_TANH, -0.0f, -0.0f},
      {MATH_GELU_ERF, -0x1p100f, 0},
      {MATH_GELU_ERF, INFINITY, INFINITY},
      {MATH_GELU_ERF, -0.0f, -0.0f},
      {MATH_GELU_TANH_GRAD, 0, 0.5f},
      {MATH_GELU_TANH_GRAD, INFINITY, 1},
      {MATH_GELU_ERF_GRAD, 0, 0.5f},
      {MATH_GELU_ERF_GRAD, INFINITY, 1},
      {MATH_SILU, -0x1p100f, 0},
      {MATH_SILU, INFINITY, INFINITY},
      {MATH_SILU, -INFINITY, 0},
      {MATH_SILU, -0.0f, -0.0f},
      {MATH_SILU_GRAD, 0, 0.5f},
      {MATH_SILU_GRAD, INFINITY, 1},
      {MATH_LOGISTIC, 0, 0.5f},
      {MATH_LOGISTIC, INFINITY, 1},
      {MATH_LOGISTIC, -INFINITY, 0},
  };
  (void)state;
  for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
    for (int e = 0; e < num_entries; e++) {
      float x[16], y[16];
      for (int k = 0; k < 16; k++) {
        x[k] = ends[i].x;
      }
      entries[e]->map[ends[i].function](x, y, 16);
      const bool negative_zero = y[0] == 0 && signbit(y[0]) != 0;
      if (y[0] != ends[i].y || (ends[i].x == 0 && signbit(y[0]) != signbit(ends[i].y))) {
        fail_msg("%s %s(%.9g): expected %.9g, got %s%.9g", entries[e]->entry,
                 functions[ends[i].function].name, (double)ends[i].x, (double)ends[i].y,
                 negative_zero ? "-" : "", (double)y[0]);
      }
    }
  }
}

/* ---- 16-bit formats ---- */

typedef struct format {
  const char *name;
  int dtype, fraction_bits, exponent_bias;
  uint16_t infinity;
} format;

static const format formats[] = {{"f16", TG_F16, 10, 15, 0x7c00},
                                 {"bf16", TG_BF16, 7, 127, 0x7f80}};

/* Value of a positive finite pattern by the definition; that of infinity is the next power of 2. */
static double value_of(const format *f, uint32_t h)
{
  const int exponent = (int)(h >> f->fraction_bits);
  const double fraction = (double)(h & ((1u << f->fraction_bits) - 1));
  const double one = (double)(1u << f->fraction_bits);
  return exponent == 0 ? ldexp(fraction / one, 1 - f->exponent_bias)
                       : ldexp(1 + fraction / one, exponent - f->exponent_bias);
}

static void test_widening(void **state)
{
  static uint16_t h[65536];
  static float y[65536];
  (void)state;
  for (uint32_t i = 0; i < 65536; i++) {
    h[i] = (uint16_t)i;
  }
  for (int k = 0; k < 2; k++) {
    const format *f = &formats[k];
    for (uint32_t i = 0; i < 65536; i++) {
      const float scalar = f->dtype == TG_F16 ? tgi_f16_to_f32(h[i]) : tgi_bf16_to_f32(h[i]);
      const uint32_t magnitude = i & 0x7fffu;
      const double want = magnitude == f->infinity ? (double)INFINITY : value_of(f, magnitude);
      if (magnitude > f->infinity ? !isnan(scalar) : (double)fabsf(scalar) != want) {
        fail_msg("%s 0x%04x: expected %.9g, got %.9g", f->name, i, want, (double)scalar);
      }
      assert_int_equal(signbit(scalar) != 0, i >> 15);
    }
    for (int e = 0; e < num_entries; e++) {
      entries[e]->load(f->dtype, h, y, 65536);
      for (uint32_t i = 0; i < 65536; i++) {
        const float scalar = f->dtype == TG_F16 ? tgi_f16_to_f32(h[i]) : tgi_bf16_to_f32(h[i]);
        if (tgi_float_bits(y[i]) != tgi_float_bits(scalar)) {
          fail_msg("%s 0x%04x %s: expected bits %08x, got %08x", f->name, i, entries[e]->entry,
                   tgi_float_bits(scalar), tgi_float_bits(y[i]));
        }
      }
    }
  }
}

typedef struct narrowing {
  const format *f;
  char failure[kChunks][160]; /* first of each chunk */
} narrowing;

/* Nearest, ties to even, by the values on both sides; `below` is kept between ascending calls. */
static uint16_t nearest(const format *f, double magnitude, uint32_t *below)
{
  while (*below + 1 < f->infinity && value_of(f, *below + 1) <= magnitude) {
    ++*below;
  }
  const double low = magnitude - value_of(f, *below), high = value_of(f, *below + 1) - magnitude;
  return (uint16_t)(*below + (high < low || (high == low && (*below & 1u))));
}

static void compare_narrowed(narrowing *t, int64_t chunk, const float *x, const uint16_t *want,
                             int n)
{
  uint16_t got[kBatch];
  float rounded[kBatch];
  for (int e = 0; e < num_entries && !t->failure[chunk][0]; e++) {
    entries[e]->store(t->f->dtype, x, got, kBatch);
    entries[e]->round(t->f->dtype, x, rounded, kBatch);
    for (int i = 0; i < n; i++) {
      const float back = t->f->dtype == TG_F16 ? tgi_f16_to_f32(want[i]) : tgi_bf16_to_f32(want[i]);
      if (got[i] != want[i] || tgi_float_bits(rounded[i]) != tgi_float_bits(back)) {
        snprintf(t->failure[chunk], sizeof t->failure[chunk],
                 "%s from f32 bits %08x, %s: expected 0x%04x, got 0x%04x, rounded %.9g", t->f->name,
                 tgi_float_bits(x[i]), entries[e]->entry, want[i], got[i], (double)rounded[i]);
        return;
      }
    }
  }
}

static void narrow_chunk(void *arg, int64_t begin, int64_t end, int thread)
{
  narrowing *t = arg;
  float x[kBatch] = {0};
  uint16_t want[kBatch];
  (void)thread;
  for (int64_t c = begin; c < end; c++) {
    const uint64_t last = (uint64_t)(c + 1) << 24;
    uint64_t bits = ((uint64_t)c << 24) + (step - ((uint64_t)c << 24) % step) % step;
    uint32_t below = 0;
    while (bits < last && !t->failure[c][0]) {
      int n = 0;
      for (; n < kBatch && bits < last; n++, bits += step) {
        x[n] = tgi_bits_float((uint32_t)bits);
        want[n] = t->f->dtype == TG_F16 ? tgi_f32_to_f16(x[n]) : tgi_f32_to_bf16(x[n]);
        const uint16_t exact = isinf(x[n])
                                   ? t->f->infinity
                                   : nearest(t->f, isnan(x[n]) ? 0 : (double)fabsf(x[n]), &below);
        const uint16_t magnitude = want[n] & 0x7fff;
        const bool sign_kept = want[n] >> 15 == bits >> 31;
        if (!sign_kept || (isnan(x[n]) ? magnitude <= t->f->infinity : magnitude != exact)) {
          snprintf(t->failure[c], sizeof t->failure[c],
                   "%s from f32 bits %08x, scalar: expected 0x%04x, got 0x%04x", t->f->name,
                   (uint32_t)bits, exact, want[n]);
          return;
        }
      }
      compare_narrowed(t, c, x, want, n);
    }
  }
}

/* Scalar code against exact rounding, and every entry against scalar code, NaN bits included. */
static void test_narrowing(void **state)
{
  static narrowing t;
  (void)state;
  for (int k = 0; k < 2; k++) {
    t = (narrowing){.f = &formats[k]};
    tgi_parallel_for(tgi_default_threads(), kChunks, 1, narrow_chunk, &t);
    for (int c = 0; c < kChunks; c++) {
      if (t.failure[c][0]) {
        fail_msg("%s", t.failure[c]);
      }
    }
  }
}

/* Lanes 2 i and 2 i + 1 change places, bits and all. */
static void test_neighbours(void **state)
{
  enum { kValues = 64 };
  float x[kValues], y[kValues];
  (void)state;
  for (int i = 0; i < kValues; i++) {
    x[i] = tgi_bits_float(0x7fa00001u + (uint32_t)i * 0x01000003u); /* a NaN, negative ones, ... */
  }
  for (int e = 0; e < num_entries; e++) {
    entries[e]->swap_neighbours(x, y, kValues);
    for (int i = 0; i < kValues; i++) {
      if (tgi_float_bits(y[i]) != tgi_float_bits(x[i ^ 1])) {
        fail_msg("%s, lane %d: expected %a, got %a", entries[e]->entry, i, (double)x[i ^ 1],
                 (double)y[i]);
      }
    }
  }
}

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_functions),  cmocka_unit_test(test_ends),
      cmocka_unit_test(test_widening),   cmocka_unit_test(test_narrowing),
      cmocka_unit_test(test_neighbours),
  };
  if (argc > 2 || (argc == 2 && strcmp(argv[1], "--exhaustive") != 0)) {
    fprintf(stderr, "usage: %s [--exhaustive]\n", argv[0]);
    return 2;
  }
  step = argc == 2 ? 1 : kStep;
  num_entries = find_math_lanes(entries);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
