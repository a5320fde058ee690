/* Learning rates over the steps. */
#include "tegula/train.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static tg_trainer_options options(tg_schedule schedule)
{
  return (tg_trainer_options){.num_steps = 100,
                              .warmup_steps = 10,
                              .learning_rate = 2e-3,
                              .min_learning_rate = 2e-4,
                              .schedule = schedule,
                              .decay_fraction = schedule == TG_SCHEDULE_WSD ? 0.2 : 0};
}

static void expect_rate(const tg_trainer_options *o, int64_t step, double rate)
{
  const double got = tg_trainer_learning_rate(o, step);
  if (!(fabs(got - rate) <= 1e-12)) {
    fail_msg("schedule %d, step %lld: expected %.12g, got %.12g", (int)o->schedule, (long long)step,
             rate, got);
  }
}

static void test_warmup(void **state)
{
  (void)state;
  for (int s = 0; s <= TG_SCHEDULE_WSD; s++) {
    const tg_trainer_options o = options((tg_schedule)s);
    for (int64_t step = 1; step <= 10; step++) {
      expect_rate(&o, step, 2e-4 * (double)step);
    }
  }
}

static void test_shapes(void **state)
{
  (void)state;
  tg_trainer_options o = options(TG_SCHEDULE_CONSTANT);
  expect_rate(&o, 11, 2e-3);
  expect_rate(&o, 100, 2e-3);
  assert_true(tg_trainer_learning_rate(&o, 50) == 2e-3);
  o = options(TG_SCHEDULE_LINEAR);
  expect_rate(&o, 11, 2e-4 + 1.8e-3 * 89 / 90);
  expect_rate(&o, 55, 1.1e-3);
  expect_rate(&o, 100, 2e-4);
  o = options(TG_SCHEDULE_COSINE);
  expect_rate(&o, 55, 1.1e-3);
  expect_rate(&o, 40, 2e-4 + 1.8e-3 * 0.75); /* a third of the way */
  expect_rate(&o, 100, 2e-4);
  const tg_trainer_options other = options((tg_schedule)0);
  assert_true(tg_trainer_learning_rate(&other, 33) == tg_trainer_learning_rate(&o, 33));
}

static void test_wsd(void **state)
{
  (void)state;
  tg_trainer_options o = options(TG_SCHEDULE_WSD);
  expect_rate(&o, 11, 2e-3);
  expect_rate(&o, 80, 2e-3);
  expect_rate(&o, 81, 2e-4 + 1.8e-3 * 19 / 20);
  expect_rate(&o, 90, 1.1e-3);
  expect_rate(&o, 100, 2e-4);
  o.decay_fraction = 1; /* no stable part: the line of linear */
  expect_rate(&o, 55, 1.1e-3);
  o.decay_fraction = 1e-9; /* one step, at least */
  expect_rate(&o, 99, 2e-3);
  expect_rate(&o, 100, 2e-4);
}

/* All warm-up, no warm-up, and steps outside. */
static void test_edges(void **state)
{
  (void)state;
  for (int s = 0; s <= TG_SCHEDULE_WSD; s++) {
    tg_trainer_options o = options((tg_schedule)s);
    const double end = s == TG_SCHEDULE_CONSTANT ? 2e-3 : 2e-4;
    expect_rate(&o, 101, end);
    expect_rate(&o, 1000000, end);
    o.warmup_steps = 100;
    expect_rate(&o, 100, 2e-3);
    expect_rate(&o, 101, end);
    o.warmup_steps = 0;
    assert_true(tg_trainer_learning_rate(&o, 1) > 1.9e-3);
    o.num_steps = 1;
    expect_rate(&o, 1, end);
  }
}

/* Nowhere does a rate leave its bounds, and after the warm-up none rises. */
static void test_falls(void **state)
{
  (void)state;
  for (int s = 0; s <= TG_SCHEDULE_WSD; s++) {
    const tg_trainer_options o = options((tg_schedule)s);
    for (int64_t step = 11; step <= 100; step++) {
      const double rate = tg_trainer_learning_rate(&o, step);
      assert_true(rate <= tg_trainer_learning_rate(&o, step - 1));
      assert_true(rate >= 2e-4 - 1e-15 && rate <= 2e-3);
    }
  }
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_warmup), cmocka_unit_test(test_shapes), cmocka_unit_test(test_wsd),
      cmocka_unit_test(test_edges),  cmocka_unit_test(test_falls),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
