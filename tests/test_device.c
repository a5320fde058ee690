/* GPUs as the library describes them, memory of a context's device, and what only a GPU does: late
 * data errors. Where there is no GPU, those tests are skipped and the rest runs on the CPU. */
#include "tegula/tegula.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static tg_context *open_context(tg_backend backend)
{
  const tg_context_options o = {.backend = backend, .num_threads = 1};
  tg_context *ctx = NULL;
  tg_error error;
  if (tg_context_create(&o, &ctx, &error) != TG_OK) {
    fail_msg("%s", error.text);
  }
  return ctx;
}

static void test_no_such_gpu(void **state)
{
  (void)state;
  const int count = tg_device_count();
  tg_device_info info;
  tg_error error = {0};
  const tg_status expected = tg_device_get_info(count, &info, &error);
  assert_true(expected == TG_BAD_ARGUMENT || (count == 0 && expected == TG_UNSUPPORTED));
  assert_int_equal(error.status, expected);
  assert_non_null(strstr(error.text, "device_get_info: index: expected"));
  assert_int_equal(tg_device_get_info(-1, &info, NULL), expected);
  assert_int_equal(tg_device_get_info(0, NULL, &error), TG_BAD_ARGUMENT);
  assert_non_null(strstr(error.text, "out: expected a pointer"));
}

static void test_every_gpu(void **state)
{
  (void)state;
  if (tg_device_count() == 0) {
    skip();
  }
  for (int i = 0; i < tg_device_count(); i++) {
    tg_device_info info;
    tg_error error;
    assert_int_equal(tg_device_get_info(i, &info, &error), TG_OK);
    assert_true(strlen(info.name) > 0);
    assert_true(info.compute_capability >= 30 && info.multiprocessors > 0);
    assert_true(info.free_bytes > 0 && info.free_bytes <= info.memory_bytes);
    assert_true(info.shared_bytes >= 48 * 1024);
    assert_true((strlen(info.kernels) > 0) == info.supported);
    assert_true((strlen(info.reason) > 0) == !info.supported);
    if (info.supported) {
      assert_non_null(strstr(info.kernels, "any"));
    }
  }
}

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

/* Three ids out of range: the first is named, the rows are NaN, and the next check is clean. */
static void test_late_data_error(void **state)
{
  (void)state;
  if (tg_device_count() == 0) {
    skip();
  }
  enum { kTokens = 1000, kRows = 5, kCols = 8 };
  tg_context *ctx = open_context(TG_BACKEND_CUDA);
  int32_t ids[kTokens];
  float table[kRows * kCols], y[kTokens * kCols];
  for (int i = 0; i < kTokens; i++) {
    ids[i] = i % kRows;
  }
  ids[900] = -1;
  ids[77] = 5;
  ids[300] = 1 << 30;
  for (int i = 0; i < kRows * kCols; i++) {
    table[i] = (float)i;
  }
  void *device = NULL;
  assert_int_equal(tg_memory_allocate(ctx, sizeof ids + sizeof table + sizeof y, &device), TG_OK);
  char *device_table = (char *)device + sizeof ids, *device_y = device_table + sizeof table;
  tg_memory_copy(ctx, device, sizeof ids, ids, sizeof ids, sizeof ids, 1);
  tg_memory_copy(ctx, device_table, sizeof table, table, sizeof table, sizeof table, 1);
  const tg_embedding_fwd_args args = {.ids = tg_tensor_1d(device, TG_I32, kTokens),
                                      .table = tg_tensor_2d(device_table, TG_F32, kRows, kCols),
                                      .y = tg_tensor_2d(device_y, TG_F32, kTokens, kCols)};
  assert_int_equal(tg_embedding_fwd(ctx, &args), TG_OK);
  assert_int_equal(tg_context_check(ctx), TG_BAD_ARGUMENT);
  assert_string_equal(tg_context_message(ctx), "embedding_fwd: ids[77]: expected 0 to 4, got 5");
  assert_int_equal(tg_context_check(ctx), TG_OK);
  tg_memory_copy(ctx, y, sizeof y, device_y, sizeof y, sizeof y, 1);
  for (int i = 0; i < kTokens * kCols; i++) {
    const int32_t id = ids[i / kCols];
    if (id < 0 || id >= kRows) {
      assert_true(isnan(y[i]));
    } else {
      assert_true(y[i] == table[id * kCols + i % kCols]);
    }
  }
  tg_memory_free(ctx, device);
  tg_context_destroy(ctx);
}

static void test_views_of_other_devices(void **state)
{
  (void)state;
  tg_context *ctx = open_context(tg_device_count() ? TG_BACKEND_CUDA : TG_BACKEND_CPU);
  float x[4] = {0};
  tg_silu_fwd_args args = {.x = tg_tensor_2d(x, TG_F32, 1, 4), .y = tg_tensor_2d(x, TG_F32, 1, 4)};
  args.x.device = tg_device_count() ? TG_DEVICE_CPU : TG_DEVICE_CUDA(0);
  assert_int_equal(tg_silu_fwd(ctx, &args), TG_BAD_ARGUMENT);
  assert_non_null(strstr(tg_context_message(ctx), "silu_fwd: x: expected memory on device 0 or"));
  tg_context_destroy(ctx);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_no_such_gpu),        cmocka_unit_test(test_every_gpu),
      cmocka_unit_test(test_memory_of_the_host), cmocka_unit_test(test_memory_of_a_gpu),
      cmocka_unit_test(test_late_data_error),    cmocka_unit_test(test_views_of_other_devices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
