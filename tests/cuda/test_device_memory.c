/* Memory of a context's device: blocks, copies, rows at a place, values fetched. On the CPU, and on
 * a GPU where there is one. */
#include "tegula/tegula.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
      cmocka_unit_test(test_fetch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
