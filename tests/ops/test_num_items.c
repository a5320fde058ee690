/* Cross-entropy with num_items_in_batch: the micro batches of a step add up to the step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "loss_batch.h"

static void test_num_items_rules(void **state)
{
  batch *b = *state;
  int64_t count = 4;
  tg_cross_entropy_fwd_args a = forward_args(b, 0, kRows, TG_REDUCTION_NUM_ITEMS);
  must_fail(b->ctx, tg_cross_entropy_fwd(b->ctx, &a), TG_BAD_ARGUMENT,
            "cross_entropy_fwd: num_items_in_batch: expected 1 to 9223372036854775807, got 0");
  a.num_items_in_batch = 4;
  a.num_items = tg_tensor_1d(&count, TG_I64, 1);
  must_fail(b->ctx, tg_cross_entropy_fwd(b->ctx, &a), TG_BAD_ARGUMENT,
            "cross_entropy_fwd: num_items_in_batch: expected 0 to 0, got 4");
  a.num_items_in_batch = 0;
  a.reduction = TG_REDUCTION_MEAN;
  must_fail(b->ctx, tg_cross_entropy_fwd(b->ctx, &a), TG_BAD_ARGUMENT,
            "cross_entropy_fwd: num_items: expected none without TG_REDUCTION_NUM_ITEMS, got some");
  a.num_items = (tg_tensor){0};
  a.num_items_in_batch = 4;
  must_fail(b->ctx, tg_cross_entropy_fwd(b->ctx, &a), TG_BAD_ARGUMENT,
            "cross_entropy_fwd: num_items_in_batch: expected 0 to 0, got 4");
}

/* The host's number and a tensor of any dtype and of rank 0 or 1 give the same bits. */
static void test_host_and_device_items(void **state)
{
  batch *b = *state;
  int32_t narrow = 9;
  int64_t wide = 9;
  float real = 9;
  const tg_tensor items[] = {{0},
                             tg_tensor_1d(&narrow, TG_I32, 1),
                             tg_tensor_1d(&wide, TG_I64, 1),
                             tg_tensor_1d(&real, TG_F32, 1),
                             tg_tensor_view(&wide, TG_I64, 0, NULL)};
  static float expected[kRows * kVocab];
  float loss = 0;
  for (size_t k = 0; k < sizeof items / sizeof items[0]; k++) {
    tg_cross_entropy_fwd_args fwd = forward_args(b, 0, kRows, TG_REDUCTION_NUM_ITEMS);
    tg_cross_entropy_bwd_args bwd = backward_args(b, 0, kRows, TG_REDUCTION_NUM_ITEMS);
    fwd.num_items = bwd.num_items = items[k];
    fwd.num_items_in_batch = bwd.num_items_in_batch = k == 0 ? 9 : 0;
    must_run(b->ctx, tg_cross_entropy_fwd(b->ctx, &fwd));
    must_run(b->ctx, tg_cross_entropy_bwd(b->ctx, &bwd));
    if (k == 0) {
      loss = b->loss[0];
      memcpy(expected, b->gradient, sizeof expected);
    }
    assert_true(b->loss[0] == loss);
    assert_memory_equal(b->gradient, expected, sizeof expected);
  }
}

/* One batch of 12 rows and four micro batches of 3 are the same step: losses add up, gradients are
 * the same bits. With mean they would not be: the micro batches hold different counts. */
static void test_micro_batches(void **state)
{
  batch *b = *state;
  static float whole[kRows * kVocab];
  b->targets[1] = b->targets[2] = b->targets[10] = kIgnored;
  tg_cross_entropy_fwd_args fwd = forward_args(b, 0, kRows, TG_REDUCTION_NUM_ITEMS);
  tg_cross_entropy_bwd_args bwd = backward_args(b, 0, kRows, TG_REDUCTION_NUM_ITEMS);
  fwd.num_items_in_batch = bwd.num_items_in_batch = kRows - 3;
  must_run(b->ctx, tg_cross_entropy_fwd(b->ctx, &fwd));
  must_run(b->ctx, tg_cross_entropy_bwd(b->ctx, &bwd));
  const double loss = (double)b->loss[0];
  memcpy(whole, b->gradient, sizeof whole);

  fwd = forward_args(b, 0, kRows, TG_REDUCTION_MEAN);
  must_run(b->ctx, tg_cross_entropy_fwd(b->ctx, &fwd));
  assert_true((double)b->loss[0] == loss); /* the count is that of the mean */

  double sum = 0;
  for (int first = 0; first < kRows; first += 3) {
    fwd = forward_args(b, first, 3, TG_REDUCTION_NUM_ITEMS);
    bwd = backward_args(b, first, 3, TG_REDUCTION_NUM_ITEMS);
    fwd.num_items_in_batch = bwd.num_items_in_batch = kRows - 3;
    must_run(b->ctx, tg_cross_entropy_fwd(b->ctx, &fwd));
    must_run(b->ctx, tg_cross_entropy_bwd(b->ctx, &bwd));
    sum += (double)b->loss[0];
  }
  expect_close("loss", 0, sum, loss, 3e-7 * loss);
  assert_memory_equal(b->gradient, whole, sizeof whole);
}

static void test_zero_items(void **state)
{
  batch *b = *state;
  int64_t none = 0;
  for (int i = 0; i < kRows; i++) {
    b->targets[i] = kIgnored;
  }
  tg_cross_entropy_fwd_args a = forward_args(b, 0, kRows, TG_REDUCTION_NUM_ITEMS);
  a.num_items = tg_tensor_1d(&none, TG_I64, 1);
  must_run(b->ctx, tg_cross_entropy_fwd(b->ctx, &a));
  expect_nan((double)b->loss[0]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(test_num_items_rules),
      TEST(test_host_and_device_items),
      TEST(test_micro_batches),
      TEST(test_zero_items),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
