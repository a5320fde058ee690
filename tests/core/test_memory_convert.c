/* Conversions between the dtypes of floats in a context's memory. On the CPU, and on a GPU where
 * there is one. */
#include "tegula/tegula.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/values/half.h"
#include "open_context.h"

typedef struct convert_case {
  int64_t rows, cols, gap;
  bool turned; /* `from` is the transposed view of [cols, rows] */
} convert_case;

static const tg_dtype kFloats[] = {TG_F32, TG_F16, TG_BF16};

/* Values with every kind of rounding, denormals, infinity and NaN among them. */
static double convertible(size_t i)
{
  static const double special[] = {0,        -0.0, 1e-8,  -6e-8,     65504,        65520, -65536,
                                   INFINITY, 3e38, 1e-40, -INFINITY, 1.0009765625, 2049};
  const size_t specials = sizeof special / sizeof special[0];
  return i % 7 == 3 ? special[i % specials] : ((double)((i * 2654435761u) % 100003) - 50000) / 777;
}

static tg_tensor convert_view(void *data, tg_dtype dtype, const convert_case *c, bool turned)
{
  tg_tensor t = tg_tensor_2d(data, dtype, c->rows, c->cols);
  t.stride[0] = turned ? 1 : c->cols + c->gap;
  t.stride[1] = turned ? c->rows + c->gap : 1;
  return t;
}

static void check_convert(tg_backend backend, tg_dtype to_dtype, tg_dtype from_dtype,
                          const convert_case *c)
{
  tg_context *ctx = open_context(backend);
  const size_t elements = (size_t)((c->rows + c->gap) * (c->cols + c->gap));
  const size_t to_bytes = elements * tg_dtype_bytes(to_dtype);
  const size_t from_bytes = elements * tg_dtype_bytes(from_dtype);
  unsigned char *here = malloc(to_bytes), *from_here = malloc(from_bytes);
  void *to, *from;
  memset(here, 0x11, to_bytes);
  for (size_t i = 0; i < elements; i++) {
    tgi_store(from_here, from_dtype, (int64_t)i, i % 101 == 50 ? NAN : convertible(i));
  }
  assert_int_equal(tg_memory_allocate(ctx, to_bytes, &to), TG_OK);
  assert_int_equal(tg_memory_allocate(ctx, from_bytes, &from), TG_OK);
  tg_memory_copy(ctx, to, to_bytes, here, to_bytes, to_bytes, 1);
  tg_memory_copy(ctx, from, from_bytes, from_here, from_bytes, from_bytes, 1);
  assert_int_equal(tg_memory_convert(ctx, convert_view(to, to_dtype, c, false),
                                     convert_view(from, from_dtype, c, c->turned)),
                   TG_OK);
  tg_memory_copy(ctx, here, to_bytes, to, to_bytes, to_bytes, 1);
  const double untouched = to_dtype == TG_F32   ? tgi_bits_float(0x11111111)
                           : to_dtype == TG_F16 ? tgi_f16_to_f32(0x1111)
                                                : tgi_bf16_to_f32(0x1111);
  for (int64_t i = 0; i < (int64_t)elements; i++) {
    const int64_t row = i / (c->cols + c->gap), col = i % (c->cols + c->gap);
    double want = untouched;
    if (row < c->rows && col < c->cols) {
      const int64_t at =
          c->turned ? col * (c->rows + c->gap) + row : row * (c->cols + c->gap) + col;
      want = tgi_round(to_dtype, tgi_load(from_here, from_dtype, at));
    }
    const double got = tgi_load(here, to_dtype, i);
    if (!(got == want && signbit(got) == signbit(want)) && !(isnan(got) && isnan(want))) {
      fail_msg("%s to %s: [%lld, %lld]: expected %g, got %g", tg_dtype_name(from_dtype),
               tg_dtype_name(to_dtype), (long long)row, (long long)col, want, got);
    }
  }
  tg_memory_free(ctx, to);
  tg_memory_free(ctx, from);
  tg_context_destroy(ctx);
  free(here);
  free(from_here);
}

static void check_converts(tg_backend backend)
{
  static const convert_case cases[] = {
      {1, 1, 0, false},    {1, 70001, 0, false}, {3, 1025, 3, false}, {70, 1030, 1, false},
      {200, 17, 0, false}, {1, 5, 2, true},      {67, 1029, 0, true}, {129, 33, 5, true}};
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
    for (int t = 0; t < 3; t++) {
      for (int f = 0; f < 3; f++) {
        check_convert(backend, kFloats[t], kFloats[f], &cases[k]);
      }
    }
  }
}

/* Every 16-bit pattern: as core/values/half.h has it, and back again; a copy keeps the bits of a
 * NaN. */
static void check_all_halves(tg_dtype dtype)
{
  enum { kAll = 1 << 16 };
  tg_context *ctx = open_context(TG_BACKEND_CPU);
  uint16_t *halves = malloc(kAll * sizeof *halves), *back = malloc(kAll * sizeof *back);
  float *wide = malloc(kAll * sizeof *wide);
  for (int i = 0; i < kAll; i++) {
    halves[i] = (uint16_t)i;
  }
  const tg_tensor from = tg_tensor_2d(halves, dtype, 1, kAll),
                  to = tg_tensor_2d(back, dtype, 1, kAll);
  const tg_tensor middle = tg_tensor_2d(wide, TG_F32, 1, kAll);
  assert_int_equal(tg_memory_convert(ctx, middle, from), TG_OK);
  assert_int_equal(tg_memory_convert(ctx, to, middle), TG_OK);
  for (int i = 0; i < kAll; i++) {
    const float want = dtype == TG_F16 ? tgi_f16_to_f32((uint16_t)i) : tgi_bf16_to_f32((uint16_t)i);
    const bool nan = isnan(want);
    assert_true(nan ? isnan(wide[i]) : wide[i] == want);
    assert_true(nan ? isnan(tgi_load(back, dtype, i)) : back[i] == i);
  }
  assert_int_equal(tg_memory_convert(ctx, to, from), TG_OK);
  assert_memory_equal(back, halves, kAll * sizeof *halves);
  tg_context_destroy(ctx);
  free(halves);
  free(back);
  free(wide);
}

static void test_convert(void **state)
{
  (void)state;
  check_converts(TG_BACKEND_CPU);
  check_all_halves(TG_F16);
  check_all_halves(TG_BF16);
  if (tg_device_count() > 0) {
    check_converts(TG_BACKEND_CUDA);
  }
}

static void test_convert_refusals(void **state)
{
  (void)state;
  tg_context *ctx = open_context(TG_BACKEND_CPU);
  float to[6] = {0};
  uint16_t from[6] = {0};
  tg_tensor target = tg_tensor_2d(to, TG_F32, 2, 3);
  const tg_tensor source = tg_tensor_2d(from, TG_BF16, 2, 3);
  assert_int_equal(tg_memory_convert(ctx, target, source), TG_OK);
  assert_int_equal(tg_memory_convert(NULL, target, source), TG_BAD_ARGUMENT);
  assert_int_equal(tg_memory_convert(ctx, target, tg_tensor_2d(from, TG_BF16, 3, 2)), TG_BAD_SHAPE);
  assert_string_equal(tg_context_message(ctx), "memory_convert: from: axis 0: expected 2, got 3");
  assert_int_equal(tg_memory_convert(ctx, tg_tensor_1d(to, TG_F32, 6), source), TG_BAD_SHAPE);
  assert_string_equal(tg_context_message(ctx), "memory_convert: to: expected 2 axes, got 1");
  assert_int_equal(tg_memory_convert(ctx, target, tg_tensor_2d(from, TG_I32, 2, 3)), TG_BAD_DTYPE);
  assert_string_equal(tg_context_message(ctx),
                      "memory_convert: from: expected f32|f16|bf16, got i32");
  assert_int_equal(tg_memory_convert(ctx, target, tg_tensor_2d(NULL, TG_F32, 2, 3)),
                   TG_BAD_ARGUMENT);
  assert_int_equal(
      tg_memory_convert(ctx, tg_tensor_2d(NULL, TG_F32, 0, 3), tg_tensor_2d(NULL, TG_BF16, 0, 3)),
      TG_OK);
  target.stride[0] = -3;
  target.stride[1] = 1;
  assert_int_equal(tg_memory_convert(ctx, target, source), TG_BAD_ARGUMENT);
  assert_string_equal(tg_context_message(ctx),
                      "memory_convert: to: axis 0: expected stride >= 0, got -3");
  tg_context_destroy(ctx);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_convert),
      cmocka_unit_test(test_convert_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
