/* Rules by which Hopper's kernels decline calls: which kernel runs a row, and so its bits, must not
 * depend on the number of rows. */
#include "ops/grouped_linear/grouped_refusals.h"
#include "ops/linear/linear_refusals.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { kIn = 1024, kOut = 64, kExperts = 2 };

static _Alignas(16) char memory[32]; /* never read */

static tg_tensor rows_of(int64_t rows, int64_t columns, int64_t step)
{
  tg_tensor t = tg_tensor_2d(memory, TG_BF16, rows, columns);
  t.stride[0] = step;
  t.stride[1] = 1;
  return t;
}

static tg_tensor weights(void)
{
  tg_tensor t = tg_tensor_2d(memory, TG_BF16, kExperts, kOut);
  t.ndim = 3;
  t.shape[2] = kIn;
  return t;
}

static bool linear_is_refused(int64_t rows, int64_t step)
{
  const tg_linear_fwd_args a = {.x = rows_of(rows, kIn, step),
                                .weight = rows_of(kOut, kIn, kIn),
                                .y = rows_of(rows, kOut, kOut)};
  return tgi_linear_fwd_refused(&a);
}

static bool grouped_is_refused(int64_t rows, int64_t x_step, int64_t y_step)
{
  const tg_grouped_linear_fwd_args a = {
      .x = rows_of(rows, kIn, x_step), .weight = weights(), .y = rows_of(rows, kOut, y_step)};
  return tgi_grouped_fwd_refused(&a);
}

static bool grouped_bwd_is_refused(int64_t rows, int64_t x_step, int64_t dy_step)
{
  const tg_grouped_linear_bwd_args a = {
      .dy = rows_of(rows, kOut, dy_step), .x = rows_of(rows, kIn, x_step), .weight = weights()};
  return tgi_grouped_bwd_refused(&a);
}

static void test_steps_of_rows(void **state)
{
  (void)state;
  for (int64_t rows = 1; rows <= 3; rows++) {
    assert_false(linear_is_refused(rows, kIn));
    assert_false(linear_is_refused(rows, kIn + 8));
    assert_true(linear_is_refused(rows, kIn + 4));
    assert_false(grouped_is_refused(rows, kIn + 8, kOut + 8));
    assert_true(grouped_is_refused(rows, kIn + 4, kOut));
    assert_true(grouped_is_refused(rows, kIn, kOut + 4));
    assert_false(grouped_bwd_is_refused(rows, kIn + 8, kOut + 8));
    assert_true(grouped_bwd_is_refused(rows, kIn + 4, kOut));
    assert_true(grouped_bwd_is_refused(rows, kIn, kOut + 4));
  }
}

/* The number of outputs is the layer's: its one row may have any step. */
static void test_one_output(void **state)
{
  (void)state;
  tg_linear_fwd_args a = {
      .x = rows_of(2, kIn, kIn), .weight = rows_of(1, kIn, kIn + 4), .y = rows_of(2, 1, 1)};
  assert_false(tgi_linear_fwd_refused(&a));
  a.weight = rows_of(2, kIn, kIn + 4);
  assert_true(tgi_linear_fwd_refused(&a));
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps_of_rows),
                                     cmocka_unit_test(test_one_output)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
