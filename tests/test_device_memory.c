/* Memory of a context's device: blocks, copies, rows at a place, conversions, values fetched. On
 * the CPU, and on a GPU where there is one. */
#include "tegula/tegula.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/half.h"
#include "open_context.h"

/* Every second run of 3 bytes there and back, the gaps untouched, then zeros. */
static void check_memory(tg_backend backend)
{
  enum { kBytes = 4096, kRun = 3, kRuns = 100 };
  tg_context *ctx = open_context(backend);
  unsigned char here[kBytes], back[kBytes];
  void *there = ctx, *nothing = ctx;
  for (int i = 0; i < kBytes; i++) {
    here[i] = (unsigned char)(i * 7 + i / 256);
    back[i] = 0xee;
  }
  assert_int_equal(tg_memory_allocate(ctx, 0, &nothing), TG_OK);
  assert_null(nothing);
  assert_int_equal(tg_memory_allocate(ctx, kBytes, &there), TG_OK);
  assert_true((uintptr_t)there % 256 == 0);
  assert_int_equal(tg_memory_copy(ctx, there, kBytes, here, kBytes, kBytes, 1), TG_OK);
  assert_int_equal(tg_memory_copy(ctx, back, 2 * kRun, there, 5, kRun, kRuns), TG_OK);
  for (int i = 0; i < kRuns; i++) {
    assert_memory_equal(back + 2 * kRun * i, here + 5 * i, kRun);
    assert_int_equal(back[2 * kRun * i + kRun], 0xee);
  }
  assert_int_equal(tg_memory_zero(ctx, (char *)there + 5, 90), TG_OK);
  assert_int_equal(tg_memory_copy(ctx, back, kBytes, there, kBytes, kBytes, 1), TG_OK);
  memset(here + 5, 0, 90);
  assert_memory_equal(back, here, kBytes);
  assert_int_equal(tg_memory_copy(ctx, NULL, 0, NULL, 0, 0, 5), TG_OK);
  assert_int_equal(tg_memory_copy(ctx, there, 4, NULL, 4, 4, 1), TG_BAD_ARGUMENT);
  assert_non_null(strstr(tg_context_message(ctx), "memory_copy: from: expected memory"));
  assert_int_equal(tg_memory_copy(ctx, there, 3, back, 4, 4, 2), TG_BAD_ARGUMENT);
  assert_non_null(strstr(tg_context_message(ctx), "to_step: expected 4 bytes or more, got 3"));
  assert_int_equal(tg_memory_zero(ctx, NULL, 4), TG_BAD_ARGUMENT);
  tg_memory_free(ctx, there);
  tg_memory_free(ctx, NULL);
  /* On the host a size that nobody passes on: the address sanitizer would end the program. */
  const size_t too_much = backend == TG_BACKEND_CUDA ? SIZE_MAX / 2 : SIZE_MAX;
  assert_int_equal(tg_memory_allocate(ctx, too_much, &there), TG_NO_MEMORY);
  assert_null(there);
  assert_non_null(strstr(tg_context_message(ctx), "memory: expected"));
  tg_context_destroy(ctx);
}

static void test_memory_of_the_host(void **state)
{
  (void)state;
  check_memory(TG_BACKEND_CPU);
  assert_int_equal(tg_memory_allocate(NULL, 1, NULL), TG_BAD_ARGUMENT);
  assert_int_equal(tg_memory_copy(NULL, NULL, 0, NULL, 0, 0, 0), TG_BAD_ARGUMENT);
  assert_int_equal(tg_memory_zero(NULL, NULL, 0), TG_BAD_ARGUMENT);
}

static void test_memory_of_a_gpu(void **state)
{
  (void)state;
  if (tg_device_count() == 0) {
    skip();
  }
  check_memory(TG_BACKEND_CUDA);
}

static unsigned char pattern(size_t i)
{
  return (unsigned char)(i * 31 + i / 4093);
}

/* There and back in pieces: odd sizes around those of the staging memory, one run and many. */
static void check_copies(tg_backend backend)
{
  static const size_t kHalf = (size_t)4 << 20;
  const struct {
    size_t bytes, rows, gap;
  } runs[] = {{1, 1, 0},
              {kHalf - 1, 1, 0},
              {kHalf, 1, 0},
              {2 * kHalf + 12345, 1, 0},
              {5 * kHalf + 3, 1, 0},
              {1000003, 11, 7},       /* a few rows to a piece */
              {kHalf + 4097, 3, 333}, /* a row and a bit of one */
              {3, 100001, 2}};
  tg_context *ctx = open_context(backend);
  for (size_t k = 0; k < sizeof runs / sizeof runs[0]; k++) {
    const size_t bytes = runs[k].bytes, rows = runs[k].rows, step = bytes + runs[k].gap;
    const size_t size = step * rows;
    unsigned char *here = malloc(size), *back = malloc(size);
    void *there = NULL;
    for (size_t i = 0; i < size; i++) {
      here[i] = pattern(i);
      back[i] = (unsigned char)~pattern(i);
    }
    assert_int_equal(tg_memory_allocate(ctx, size, &there), TG_OK);
    assert_int_equal(tg_memory_copy(ctx, there, step, here, step, bytes, rows), TG_OK);
    memset(here, 0, size); /* the host's side was read */
    assert_int_equal(tg_memory_copy(ctx, back, step, there, step, bytes, rows), TG_OK);
    for (size_t i = 0; i < size; i++) {
      const unsigned char want = pattern(i);
      if (back[i] != (i % step < bytes ? want : (unsigned char)~want)) {
        fail_msg("case %zu: byte %zu: expected %d, got %d", k, i, want, back[i]);
      }
    }
    tg_memory_free(ctx, there);
    free(here);
    free(back);
  }
  tg_context_destroy(ctx);
}

static void test_copies(void **state)
{
  (void)state;
  check_copies(TG_BACKEND_CPU);
  if (tg_device_count() > 0) {
    check_copies(TG_BACKEND_CUDA);
  }
}

/* Many small uploads one after the other, each from the same memory of the host. */
static void check_uploads(tg_backend backend)
{
  enum { kTimes = 1000 };
  tg_context *ctx = open_context(backend);
  void *there = NULL;
  int32_t back[kTimes];
  assert_int_equal(tg_memory_allocate(ctx, sizeof back, &there), TG_OK);
  for (int32_t i = 0; i < kTimes; i++) {
    assert_int_equal(tg_memory_copy(ctx, (int32_t *)there + i, sizeof i, &i, sizeof i, sizeof i, 1),
                     TG_OK);
  }
  assert_int_equal(tg_memory_copy(ctx, back, sizeof back, there, sizeof back, sizeof back, 1),
                   TG_OK);
  for (int32_t i = 0; i < kTimes; i++) {
    assert_int_equal(back[i], i);
  }
  tg_memory_free(ctx, there);
  tg_context_destroy(ctx);
}

static void test_uploads(void **state)
{
  (void)state;
  check_uploads(TG_BACKEND_CPU);
  if (tg_device_count() > 0) {
    check_uploads(TG_BACKEND_CUDA);
  }
}

/* Blocks of about the size are given out again, by any context of the GPU; the last one takes them
 * along, and so does a request that cannot be met. */
static void test_reuse(void **state)
{
  (void)state;
  if (tg_device_count() == 0) {
    skip();
  }
  const size_t large = (size_t)256 << 20;
  tg_context *ctx = open_context(TG_BACKEND_CUDA), *other = open_context(TG_BACKEND_CUDA);
  void *first, *second, *third;
  tg_device_info before, after;
  assert_int_equal(tg_memory_allocate(ctx, large, &first), TG_OK);
  tg_memory_free(ctx, first);
  assert_int_equal(tg_memory_allocate(other, large - 12345, &second), TG_OK);
  assert_ptr_equal(second, first);
  assert_int_equal(tg_memory_allocate(ctx, large, &third), TG_OK); /* that one is taken */
  assert_ptr_not_equal(third, first);
  tg_memory_free(other, second);
  assert_int_equal(tg_memory_allocate(ctx, large / 2, &second), TG_OK); /* too large for this */
  assert_ptr_not_equal(second, first);
  tg_memory_free(ctx, second);
  tg_memory_free(other, third); /* by another context than the one that allocated it */
  assert_int_equal(tg_device_get_info(0, &before, NULL), TG_OK);
  assert_int_equal(tg_memory_allocate(ctx, SIZE_MAX / 2, &second), TG_NO_MEMORY);
  assert_null(second);
  assert_non_null(strstr(tg_context_message(ctx), "bytes on CUDA device 0, got "));
  assert_non_null(
      strstr(tg_context_message(ctx), "; 671088640 bytes kept for reuse were released"));
  assert_int_equal(tg_device_get_info(0, &after, NULL), TG_OK);
  assert_true(after.free_bytes >= before.free_bytes + (int64_t)(2 * large));
  assert_int_equal(tg_memory_allocate(ctx, large, &first), TG_OK);
  tg_memory_free(ctx, first);
  assert_int_equal(tg_device_get_info(0, &before, NULL), TG_OK);
  tg_context_destroy(ctx);
  tg_context_destroy(other);
  assert_int_equal(tg_device_get_info(0, &after, NULL), TG_OK);
  assert_true(after.free_bytes >= before.free_bytes + (int64_t)large);
}

enum { kPutRows = 2, kPutPlaces = 5 };

/* Rows of `cols` elements, with gaps, at place `index` of each. */
static void check_put(tg_backend backend, tg_dtype dtype, int64_t cols, int64_t gap, int32_t index)
{
  tg_context *ctx = open_context(backend);
  const size_t element = tg_dtype_bytes(dtype);
  const int64_t width = cols + gap;
  const size_t to_bytes = (size_t)(kPutRows * kPutPlaces * width) * element;
  const size_t from_bytes = (size_t)(kPutRows * width) * element;
  unsigned char *here = malloc(to_bytes), *from_here = malloc(from_bytes);
  void *to, *from, *at;
  memset(here, 0x11, to_bytes);
  for (size_t i = 0; i < from_bytes; i++) {
    from_here[i] = pattern(i);
  }
  assert_int_equal(tg_memory_allocate(ctx, to_bytes, &to), TG_OK);
  assert_int_equal(tg_memory_allocate(ctx, from_bytes, &from), TG_OK);
  assert_int_equal(tg_memory_allocate(ctx, sizeof index, &at), TG_OK);
  tg_memory_copy(ctx, to, to_bytes, here, to_bytes, to_bytes, 1);
  tg_memory_copy(ctx, from, from_bytes, from_here, from_bytes, from_bytes, 1);
  tg_memory_copy(ctx, at, sizeof index, &index, sizeof index, sizeof index, 1);
  tg_tensor target = tg_tensor_view(to, dtype, 3, (const int64_t[]){kPutRows, kPutPlaces, cols});
  target.stride[0] = kPutPlaces * width;
  target.stride[1] = width;
  target.stride[2] = 1;
  tg_tensor source = tg_tensor_2d(from, dtype, kPutRows, cols);
  source.stride[0] = width;
  source.stride[1] = 1;
  assert_int_equal(tg_memory_put(ctx, target, source, tg_tensor_1d(at, TG_I32, 1)), TG_OK);
  tg_memory_copy(ctx, here, to_bytes, to, to_bytes, to_bytes, 1);
  for (size_t i = 0; i < to_bytes; i++) {
    const size_t e = i / element, column = e % (size_t)width, row = e / (size_t)width;
    const bool written = column < (size_t)cols && index >= 0 && row % kPutPlaces == (size_t)index;
    const size_t source_at = (row / kPutPlaces * (size_t)width + column) * element + i % element;
    assert_int_equal(here[i], written ? pattern(source_at) : 0x11);
  }
  tg_memory_free(ctx, to);
  tg_memory_free(ctx, from);
  tg_memory_free(ctx, at);
  tg_context_destroy(ctx);
  free(here);
  free(from_here);
}

/* Rows of one tensor of places, each to its own; some to none. */
static void check_scattered(tg_backend backend)
{
  enum { kFrom = 5, kTo = 9, kCols = 12 };
  static const int32_t places[kFrom] = {7, -1, 0, 9, 4};
  tg_context *ctx = open_context(backend);
  float here[kTo * kCols] = {0}, from_here[kFrom * kCols];
  void *to, *from, *at;
  for (int i = 0; i < kFrom * kCols; i++) {
    from_here[i] = (float)(i + 1);
  }
  assert_int_equal(tg_memory_allocate(ctx, sizeof here, &to), TG_OK);
  assert_int_equal(tg_memory_allocate(ctx, sizeof from_here, &from), TG_OK);
  assert_int_equal(tg_memory_allocate(ctx, sizeof places, &at), TG_OK);
  tg_memory_copy(ctx, to, sizeof here, here, sizeof here, sizeof here, 1);
  tg_memory_copy(ctx, from, sizeof from_here, from_here, sizeof from_here, sizeof from_here, 1);
  tg_memory_copy(ctx, at, sizeof places, places, sizeof places, sizeof places, 1);
  tg_tensor target = tg_tensor_view(to, TG_F32, 3, (const int64_t[]){kFrom, kTo, kCols});
  target.stride[0] = 0;
  target.stride[1] = kCols;
  target.stride[2] = 1;
  assert_int_equal(tg_memory_put(ctx, target, tg_tensor_2d(from, TG_F32, kFrom, kCols),
                                 tg_tensor_1d(at, TG_I32, kFrom)),
                   TG_OK);
  tg_memory_copy(ctx, here, sizeof here, to, sizeof here, sizeof here, 1);
  for (int i = 0; i < kTo * kCols; i++) {
    const int row = i / kCols == 7 ? 0 : i / kCols == 0 ? 2 : i / kCols == 4 ? 4 : -1;
    assert_int_equal((int)here[i], row < 0 ? 0 : row * kCols + i % kCols + 1);
  }
  tg_memory_free(ctx, to);
  tg_memory_free(ctx, from);
  tg_memory_free(ctx, at);
  tg_context_destroy(ctx);
}

static void check_puts(tg_backend backend)
{
  static const tg_dtype dtypes[] = {TG_I8, TG_BF16, TG_F32, TG_I64};
  static const int32_t places[] = {0, 3, 4, 5, -1, INT32_MIN, INT32_MAX};
  for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
    for (size_t p = 0; p < sizeof places / sizeof places[0]; p++) {
      check_put(backend, dtypes[d], 768, 0, places[p]);
      check_put(backend, dtypes[d], 13, 2, places[p]);
    }
  }
  check_scattered(backend);
}

static void test_put(void **state)
{
  (void)state;
  check_puts(TG_BACKEND_CPU);
  if (tg_device_count() > 0) {
    check_puts(TG_BACKEND_CUDA);
  }
}

static void test_put_refusals(void **state)
{
  (void)state;
  tg_context *ctx = open_context(TG_BACKEND_CPU);
  float to[24] = {0}, from[6] = {0};
  int32_t at = 0;
  tg_tensor target = tg_tensor_view(to, TG_F32, 3, (const int64_t[]){2, 4, 3});
  const tg_tensor source = tg_tensor_2d(from, TG_F32, 2, 3), index = tg_tensor_1d(&at, TG_I32, 1);
  assert_int_equal(tg_memory_put(ctx, target, source, index), TG_OK);
  assert_int_equal(tg_memory_put(NULL, target, source, index), TG_BAD_ARGUMENT);
  assert_int_equal(tg_memory_put(ctx, source, source, index), TG_BAD_SHAPE);
  assert_string_equal(tg_context_message(ctx), "memory_put: to: expected 3 axes, got 2");
  assert_int_equal(tg_memory_put(ctx, target, tg_tensor_2d(from, TG_F32, 3, 2), index),
                   TG_BAD_SHAPE);
  assert_string_equal(tg_context_message(ctx), "memory_put: from: axis 0: expected 2, got 3");
  assert_int_equal(tg_memory_put(ctx, target, tg_tensor_2d(from, TG_F16, 2, 3), index),
                   TG_BAD_DTYPE);
  assert_int_equal(tg_memory_put(ctx, target, source, tg_tensor_1d(&at, TG_I64, 1)), TG_BAD_DTYPE);
  assert_string_equal(tg_context_message(ctx), "memory_put: index: expected i32, got i64");
  assert_int_equal(tg_memory_put(ctx, target, source, tg_tensor_1d(NULL, TG_I32, 1)),
                   TG_BAD_ARGUMENT);
  int32_t three[3] = {0};
  assert_int_equal(tg_memory_put(ctx, target, source, tg_tensor_1d(three, TG_I32, 3)),
                   TG_BAD_SHAPE);
  assert_string_equal(tg_context_message(ctx), "memory_put: index: axis 0: expected 1, got 3");
  target.stride[0] = 1;
  target.stride[1] = 2;
  target.stride[2] = 8;
  assert_int_equal(tg_memory_put(ctx, target, source, index), TG_BAD_ARGUMENT);
  assert_string_equal(tg_context_message(ctx), "memory_put: to: axis 2: expected stride 1, got 8");
  tg_context_destroy(ctx);
}

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

/* Every 16-bit pattern: as core/half.h has it, and back again; a copy keeps the bits of a NaN. */
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

/* Two values on their way, taken in either order, while the memory behind them changes. */
static void check_fetch(tg_backend backend)
{
  tg_context *ctx = open_context(backend);
  tg_fetch *fetch[2] = {NULL, NULL};
  const int64_t values[3] = {-7, 1ll << 40, 99};
  int64_t got = 0;
  void *there = NULL;
  assert_int_equal(tg_memory_allocate(ctx, sizeof got, &there), TG_OK);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(tg_fetch_create(ctx, sizeof got, &fetch[i]), TG_OK);
    assert_int_equal(tg_fetch_wait(ctx, fetch[i], &got), TG_BAD_ARGUMENT);
    assert_non_null(strstr(tg_context_message(ctx), "fetch_wait: fetch: expected one that was st"));
  }
  for (int i = 0; i < 3; i++) {
    tg_memory_copy(ctx, there, sizeof got, &values[i], sizeof got, sizeof got, 1);
    if (i < 2) {
      assert_int_equal(tg_fetch_start(ctx, fetch[i], there), TG_OK);
    }
  }
  for (int i = 1; i >= 0; i--) {
    assert_int_equal(tg_fetch_wait(ctx, fetch[i], &got), TG_OK);
    assert_true(got == values[i]);
  }
  assert_int_equal(tg_fetch_start(ctx, fetch[0], there), TG_OK); /* and not waited for */
  assert_int_equal(tg_fetch_start(ctx, fetch[0], NULL), TG_BAD_ARGUMENT);
  tg_fetch_destroy(ctx, fetch[0]);
  tg_fetch_destroy(ctx, fetch[1]);
  assert_int_equal(tg_fetch_create(ctx, 0, &fetch[1]), TG_BAD_ARGUMENT);
  assert_null(fetch[1]);
  tg_fetch_destroy(ctx, NULL);
  tg_memory_free(ctx, there);
  tg_context_destroy(ctx);
}

static void test_fetch(void **state)
{
  (void)state;
  check_fetch(TG_BACKEND_CPU);
  assert_int_equal(tg_fetch_create(NULL, 4, NULL), TG_BAD_ARGUMENT);
  if (tg_device_count() > 0) {
    check_fetch(TG_BACKEND_CUDA);
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_memory_of_the_host),
      cmocka_unit_test(test_memory_of_a_gpu),
      cmocka_unit_test(test_copies),
      cmocka_unit_test(test_uploads),
      cmocka_unit_test(test_reuse),
      cmocka_unit_test(test_put),
      cmocka_unit_test(test_put_refusals),
      cmocka_unit_test(test_convert),
      cmocka_unit_test(test_convert_refusals),
      cmocka_unit_test(test_fetch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
