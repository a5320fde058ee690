/* The vector words of src/cpu against f64, value by value: exp, tanh, GELU and SiLU and their
 * derivatives, for every instruction set of this machine.
 *
 *   test_math               one f32 in 1021, and all near the places where something changes
 *   test_math --exhaustive  all 2^32
 *
 * Prints the largest error of each function. */
#include "float_sweep.h"
#include "math_lanes.h"

#include "core/machine/threads.h"
#include "core/values/half.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { kNear = 64 };

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

static void sweep_chunk(void *arg, int64_t begin, int64_t end, int thread)
{
  sweep *s = arg;
  float x[kBatch] = {0};
  (void)thread;
  for (int64_t c = begin; c < end; c++) {
    const uint64_t last = (uint64_t)(c + 1) << 24;
    uint64_t bits = sweep_first(c);
    while (bits < last) {
      int n = 0;
      for (; n < kBatch && bits < last; n++, bits += sweep_step) {
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

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_functions),
      cmocka_unit_test(test_ends),
  };
  if (!sweep_arguments(argc, argv)) {
    return 2;
  }
  num_entries = find_math_lanes(entries);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
