/* The words of src/cpu that move two vectors at once, pairs of values, or neighbours, against plain
 * indexing, for every instruction set of this machine: the same bits as one value at a time, NaN
 * included. */
#include "math_lanes.h"

#include "core/values/half.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { kCount = 1 << 16, kDtypes = 3 };

static const tg_dtype dtypes[kDtypes] = {TG_F32, TG_F16, TG_BF16};

static const math_lanes *entries[MATH_ENTRIES];
static int num_entries;

/* Element i of what a dtype holds, as bits of the f32 that it stands for. */
static uint32_t widened(tg_dtype t, const void *data, int64_t i)
{
  if (t == TG_F32) {
    return ((const uint32_t *)data)[i];
  }
  const uint16_t h = ((const uint16_t *)data)[i];
  return tgi_float_bits(t == TG_F16 ? tgi_f16_to_f32(h) : tgi_bf16_to_f32(h));
}

/* What element i of the dtype becomes from an f32, as bits. */
static uint32_t narrowed(tg_dtype t, float v)
{
  return t == TG_F32 ? tgi_float_bits(v) : t == TG_F16 ? tgi_f32_to_f16(v) : tgi_f32_to_bf16(v);
}

static uint32_t stored(tg_dtype t, const void *data, int64_t i)
{
  return t == TG_F32 ? ((const uint32_t *)data)[i] : ((const uint16_t *)data)[i];
}

/* Every pattern of 16 bits in a scattered order, over every kind of lower half: ties and what is
 * next to them, so that NaN and numbers share vectors. */
static void scatter(float *x)
{
  static const uint16_t lower[8] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x4000, 0xc000};
  for (uint32_t i = 0; i < kCount; i++) {
    const uint32_t upper = i * 40503u & 0xffffu;
    x[i] = tgi_bits_float(upper << 16 | lower[(i >> 3 ^ i) & 7]);
  }
}

static void expect(uint32_t got, uint32_t want, const char *what, const char *entry, tg_dtype t,
                   int64_t i)
{
  if (got != want) {
    fail_msg("%s, %s, %s[%d]: expected %08x, got %08x", what, entry, tg_dtype_name(t), (int)i, want,
             got);
  }
}

static float values[kCount], even[kCount], odd[kCount];
static _Alignas(64) uint32_t memory[kCount];

static void test_two(void **state)
{
  (void)state;
  scatter(values);
  for (int e = 0; e < num_entries; e++) {
    for (int d = 0; d < kDtypes; d++) {
      const tg_dtype t = dtypes[d];
      for (int stream = 0; stream < 2; stream++) {
        memset(memory, 0, sizeof memory);
        entries[e]->store_two((int)t, values, memory, kCount, stream);
        for (int64_t i = 0; i < kCount; i++) {
          expect(stored(t, memory, i), narrowed(t, values[i]), "store", entries[e]->entry, t, i);
        }
      }
      entries[e]->load_two((int)t, memory, even, kCount);
      for (int64_t i = 0; i < kCount; i++) {
        expect(tgi_float_bits(even[i]), widened(t, memory, i), "load", entries[e]->entry, t, i);
      }
    }
  }
}

/* n pairs, and nothing past them. */
static void check_pairs(const math_lanes *lanes, tg_dtype t, int64_t n, bool stream)
{
  memset(memory, 0x5a, sizeof memory);
  lanes->store_pairs((int)t, values, values + n, memory, n, stream);
  for (int64_t i = 0; i < n; i++) {
    expect(stored(t, memory, 2 * i), narrowed(t, values[i]), "even store", lanes->entry, t, i);
    expect(stored(t, memory, 2 * i + 1), narrowed(t, values[n + i]), "odd store", lanes->entry, t,
           i);
  }
  const uint32_t untouched = t == TG_F32 ? 0x5a5a5a5au : 0x5a5au;
  for (int64_t i = 2 * n; i < kCount && i < 2 * n + 64; i++) {
    expect(stored(t, memory, i), untouched, "past the end", lanes->entry, t, i);
  }
  memset(even, 0, sizeof even);
  memset(odd, 0, sizeof odd);
  lanes->load_pairs((int)t, memory, even, odd, n);
  for (int64_t i = 0; i < n; i++) {
    expect(tgi_float_bits(even[i]), widened(t, memory, 2 * i), "even load", lanes->entry, t, i);
    expect(tgi_float_bits(odd[i]), widened(t, memory, 2 * i + 1), "odd load", lanes->entry, t, i);
  }
}

static void test_pairs(void **state)
{
  (void)state;
  scatter(values);
  for (int e = 0; e < num_entries; e++) {
    for (int d = 0; d < kDtypes; d++) {
      for (int64_t n = 1; n <= 40; n++) {
        check_pairs(entries[e], dtypes[d], n, false);
      }
      check_pairs(entries[e], dtypes[d], kCount / 2, false);
      check_pairs(entries[e], dtypes[d], kCount / 2, true);
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

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_two),
      cmocka_unit_test(test_pairs),
      cmocka_unit_test(test_neighbours),
  };
  num_entries = find_math_lanes(entries);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
