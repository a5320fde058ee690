/* Measuring products: on the CPU nothing happens; on a GPU a measured product is in a file that
 * later contexts read. */
#include "tegula/tegula.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "expect_op.h"
#include "open_context.h"
#include "scratch_directory.h"

enum { kRows = 256, kIn = 512, kOut = 384 };

static void expect_table(const tg_context *ctx, const char *part)
{
  const char *text = tg_context_table(ctx);
  if (!strstr(text, part)) {
    fail_msg("expected a table with \"%s\", got \"%s\"", part, text);
  }
}

static void test_on_the_cpu(void **state)
{
  (void)state;
  tg_context *ctx = open_context(TG_BACKEND_CPU);
  int64_t measured = -1, removed = -1;
  tg_error error;
  assert_int_equal(tg_tune_begin(ctx), TG_OK);
  assert_int_equal(tg_tune_end(ctx, &measured), TG_OK);
  assert_int_equal(measured, 0);
  assert_string_equal(tg_context_table(ctx), "built in");
  assert_int_equal(tg_tune_clear(&removed, &error), TG_OK);
  assert_int_equal(removed, 0);
  assert_int_equal(tg_tune_begin(NULL), TG_BAD_ARGUMENT);
  assert_int_equal(tg_tune_end(NULL, NULL), TG_BAD_ARGUMENT);
  tg_context_destroy(ctx);
}

static void *zeros(tg_context *ctx, int64_t elements)
{
  void *there = NULL;
  must_run(ctx, tg_memory_allocate(ctx, 2 * (size_t)elements, &there));
  must_run(ctx, tg_memory_zero(ctx, there, 2 * (size_t)elements));
  return there;
}

static void test_on_a_gpu(void **state)
{
  (void)state;
  if (tg_device_count() == 0) {
    skip();
  }
  tg_context *ctx = open_context(TG_BACKEND_CUDA);
  int64_t measured = -1;
  assert_int_equal(tg_tune_begin(ctx), TG_BAD_ARGUMENT);
  assert_non_null(strstr(tg_context_message(ctx), "expected a prepared context"));
  must_run(ctx, tg_context_prepare(ctx));
  assert_string_equal(tg_context_table(ctx), "built in");
  const tg_linear_fwd_args a = {.x = tg_tensor_2d(zeros(ctx, kRows * kIn), TG_BF16, kRows, kIn),
                                .weight = tg_tensor_2d(zeros(ctx, kOut * kIn), TG_BF16, kOut, kIn),
                                .y = tg_tensor_2d(zeros(ctx, kRows * kOut), TG_BF16, kRows, kOut)};
  must_run(ctx, tg_tune_begin(ctx));
  must_run(ctx, tg_linear_fwd(ctx, &a));
  must_run(ctx, tg_linear_fwd(ctx, &a)); /* is measured once */
  must_run(ctx, tg_tune_end(ctx, &measured));
  const int64_t wanted = strcmp(tg_context_entry(ctx), "sm90") == 0; /* others: no candidates */
  assert_int_equal(measured, wanted);
  must_run(ctx, tg_linear_fwd(ctx, &a));
  must_run(ctx, tg_context_check(ctx));
  tg_context *later = open_context(TG_BACKEND_CUDA);
  must_run(later, tg_context_prepare(later));
  expect_table(ctx, wanted ? ": 1 product" : "built in");
  expect_table(later, wanted ? ": 1 product" : "built in");
  tg_context_destroy(later);
  tg_memory_free(ctx, a.y.data);
  tg_memory_free(ctx, a.weight.data);
  tg_memory_free(ctx, a.x.data);
  tg_context_destroy(ctx);
}

static scratch directory;

static int set_up(void **state)
{
  (void)state;
  directory = scratch_make();
  return setenv("TEGULA_CACHE_DIR", directory.path, 1);
}

static int remove_all(void **state)
{
  (void)state;
  scratch_remove(&directory);
  return 0;
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_on_the_cpu),
                                     cmocka_unit_test(test_on_a_gpu)};
  return cmocka_run_group_tests(tests, set_up, remove_all);
}
