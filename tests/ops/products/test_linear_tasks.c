/* A product that is cut into tasks along both axes, which the spec driver's are too small for:
 * every element of it, on every entry. Its numbers are small integers, so that sums are exact. */
#include "tegula/tegula.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "every_entry.h"
#include "expect_op.h"

enum { kRows = 1030, kIn = 5, kOut = 2070 }; /* tasks have at most 512 rows and 1024 columns */

static float element(int64_t i, int64_t k)
{
  return (float)((i * 7 + k * 3) % 11 - 5);
}

static void expect_product(tg_context *ctx, const float *x, const float *weight, float *y)
{
  tg_linear_fwd_args a = {.x = tg_tensor_2d((void *)x, TG_F32, kRows, kIn),
                          .weight = tg_tensor_2d((void *)weight, TG_F32, kOut, kIn),
                          .y = tg_tensor_2d(y, TG_F32, kRows, kOut)};
  must_run(ctx, tg_linear_fwd_workspace(ctx, &a, &a.workspace_bytes));
  a.workspace = aligned_alloc(256, a.workspace_bytes + 256);
  for (int64_t i = 0; i < (int64_t)kRows * kOut; i++) {
    y[i] = NAN;
  }
  must_run(ctx, tg_linear_fwd(ctx, &a));
  free(a.workspace);
  for (int64_t i = 0; i < kRows; i++) {
    for (int64_t j = 0; j < kOut; j++) {
      float sum = 0;
      for (int64_t k = 0; k < kIn; k++) {
        sum += x[i * kIn + k] * weight[j * kIn + k];
      }
      if (!(y[i * kOut + j] == sum)) {
        fail_msg("%s: y[%lld, %lld]: expected %g, got %g", tg_context_entry(ctx), (long long)i,
                 (long long)j, (double)sum, (double)y[i * kOut + j]);
      }
    }
  }
}

static void test_every_task_is_done(void **state)
{
  every_entry e;
  (void)state;
  assert_int_equal(every_entry_open(&e), 0);
  float *x = malloc(sizeof(float) * kRows * kIn), *weight = malloc(sizeof(float) * kOut * kIn);
  float *y = malloc(sizeof(float) * kRows * kOut);
  for (int64_t i = 0; i < kRows * kIn; i++) {
    x[i] = element(i / kIn, i % kIn);
  }
  for (int64_t i = 0; i < kOut * kIn; i++) {
    weight[i] = element(i % kIn, i / kIn);
  }
  for (int i = 0; i < e.count; i++) {
    expect_product(e.ctx[i], x, weight, y);
  }
  free(x);
  free(weight);
  free(y);
  every_entry_close(&e);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_task_is_done)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
