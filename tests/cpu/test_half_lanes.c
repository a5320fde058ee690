/* The conversions between f32 and the 16-bit formats, value by value: scalar code against the
 * definition, the vector words of every instruction set of this machine against scalar code.
 *
 *   test_half_lanes               one f32 in 1021
 *   test_half_lanes --exhaustive  all 2^32
 */
#include "float_sweep.h"
#include "math_lanes.h"

#include "core/machine/threads.h"
#include "core/values/half.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static const math_lanes *entries[MATH_ENTRIES];
static int num_entries;

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
    uint64_t bits = sweep_first(c);
    uint32_t below = 0;
    while (bits < last && !t->failure[c][0]) {
      int n = 0;
      for (; n < kBatch && bits < last; n++, bits += sweep_step) {
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

int main(int argc, char **argv)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_widening),
      cmocka_unit_test(test_narrowing),
  };
  if (!sweep_arguments(argc, argv)) {
    return 2;
  }
  num_entries = find_math_lanes(entries);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
