/* Sampling of bad data: rows, histories and vocabularies that the contract refuses, by name. */
#include "tegula/tegula.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu_entries.h"
#include "sample_call.h"

/* Rows that cannot be sampled are named and get -1; the others are picked. */
static void test_bad_rows(void **state)
{
  const float bad[3][3] = {{0, NAN, 1}, {INFINITY, 0, 0}, {-INFINITY, -INFINITY, -INFINITY}};
  cpu_entries e = open_cpu_entries(2);
  (void)state;
  for (int k = 0; k < e.count * 3 * 2; k++) {
    float logits[9] = {0, -INFINITY, -INFINITY, 0, 0, 0, -INFINITY, 0, -INFINITY}, log_prob[3];
    int64_t ids[3] = {7, 7, 7};
    memcpy(logits + 3, bad[k / 2 % 3], sizeof bad[0]);
    const tg_sample_fwd_args a = {.logits = tg_tensor_2d(logits, TG_F32, 3, 3),
                                  .ids = tg_tensor_1d(ids, TG_I64, 3),
                                  .log_prob = tg_tensor_1d(log_prob, TG_F32, 3),
                                  .temperature = (float)(k % 2)};
    must_fail(e.ctx[k / 6], sample(e.ctx[k / 6], a), TG_BAD_ARGUMENT,
              "sample_fwd: logits[1]: expected numbers below infinity and a finite one, got a row "
              "without");
    assert_int_equal(ids[0], 0);
    assert_int_equal(ids[1], -1);
    assert_int_equal(ids[2], 1);
    assert_true(log_prob[0] == 0 && isnan(log_prob[1]) && log_prob[2] == 0);
  }
  close_cpu_entries(&e);
}

static void test_bad_history(void **state)
{
  float logits[10] = {0};
  int64_t ids[2] = {7, 7}, history[6] = {0, 4, 1, 2, 3, 5}, lengths[2] = {3, 2};
  cpu_entries e = open_cpu_entries(1);
  (void)state;
  for (int k = 0; k < e.count; k++) {
    tg_context *ctx = e.ctx[k];
    tg_sample_fwd_args a = {.logits = tg_tensor_2d(logits, TG_F32, 2, 5),
                            .history = tg_tensor_2d(history, TG_I64, 2, 3),
                            .ids = tg_tensor_1d(ids, TG_I64, 2),
                            .repetition_penalty = 1.1f};
    must_fail(ctx, sample(ctx, a), TG_BAD_ARGUMENT,
              "sample_fwd: history[1, 2]: expected 0 to 4, got 5");
    a.history_lengths = tg_tensor_1d(lengths, TG_I64, 2);
    must_run(ctx, sample(ctx, a)); /* the 5 does not count */
    lengths[0] = 4;
    must_fail(ctx, sample(ctx, a), TG_BAD_ARGUMENT,
              "sample_fwd: history_lengths[0]: expected 0 to 3, got 4");
    lengths[0] = -1;
    must_fail(ctx, sample(ctx, a), TG_BAD_ARGUMENT,
              "sample_fwd: history_lengths[0]: expected 0 to 3, got -1");
    lengths[0] = 3;
    history[0] = -1;
    must_fail(ctx, sample(ctx, a), TG_BAD_ARGUMENT,
              "sample_fwd: history[0, 0]: expected 0 to 4, got -1");
    history[0] = 0;
    a.history = (tg_tensor){0};
    must_fail(ctx, tg_sample_fwd(ctx, &a), TG_BAD_ARGUMENT,
              "sample_fwd: history: expected ids beside history_lengths, got none");
    a.history_lengths = (tg_tensor){0};
    a.logits = tg_tensor_2d(logits, TG_F32, 2, 0);
    must_fail(ctx, tg_sample_fwd(ctx, &a), TG_BAD_SHAPE,
              "sample_fwd: logits: expected a vocabulary of 1 to 8388608, got 0");
    float *wide = malloc(sizeof *wide * 2 * 8388609); /* never touched, but apart from ids */
    assert_non_null(wide);
    a.logits = tg_tensor_2d(wide, TG_F32, 2, 8388609);
    must_fail(ctx, tg_sample_fwd(ctx, &a), TG_BAD_SHAPE,
              "sample_fwd: logits: expected a vocabulary of 1 to 8388608, got 8388609");
    free(wide);
  }
  close_cpu_entries(&e);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bad_rows),
      cmocka_unit_test(test_bad_history),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
