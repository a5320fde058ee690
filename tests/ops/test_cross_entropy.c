/* Cross-entropy where the spec driver cannot reach: PyTorch's values, targets out of range, ignored
 * rows, ties, 16-bit gradients. */
#include "golden/cross_entropy/cross_entropy_values.h"
#include "tegula/tegula.h"

#include "core/values/half.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "loss_batch.h"

/* ---- PyTorch's values ---- */

typedef struct golden_case {
  double loss;
  const double *gradient;
  tg_reduction reduction;
  int64_t items;
  float smoothing, z_loss, softcap;
} golden_case;

static void test_against_pytorch(void **state)
{
  batch *b = *state;
  const golden_case cases[] = {
      {kMeanLoss, kMeanGradient, TG_REDUCTION_MEAN, 0, 0, 0, 0},
      {kSumLoss, kSumGradient, TG_REDUCTION_SUM, 0, 0.125f, 0, 0},
      {kItemsLoss, kItemsGradient, TG_REDUCTION_NUM_ITEMS, 11, 0, 0.0625f, 0},
      {kCappedLoss, kCappedGradient, TG_REDUCTION_MEAN, 0, 0.125f, 0.0625f, 4},
  };
  memcpy(b->logits, kGoldenLogits, sizeof kGoldenLogits);
  for (int i = 0; i < kGoldenRows; i++) {
    b->targets[i] = kGoldenTargets[i];
  }
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
    const golden_case *c = &cases[k];
    tg_cross_entropy_fwd_args fwd = forward_args(b, 0, kGoldenRows, c->reduction);
    tg_cross_entropy_bwd_args bwd = backward_args(b, 0, kGoldenRows, c->reduction);
    fwd.logits.shape[1] = bwd.logits.shape[1] = bwd.dlogits.shape[1] = kGoldenVocab;
    fwd.label_smoothing = bwd.label_smoothing = c->smoothing;
    fwd.z_loss = bwd.z_loss = c->z_loss;
    fwd.softcap = bwd.softcap = c->softcap;
    fwd.num_items_in_batch = bwd.num_items_in_batch = c->items;
    must_run(b->ctx, tg_cross_entropy_fwd(b->ctx, &fwd));
    must_run(b->ctx, tg_cross_entropy_bwd(b->ctx, &bwd));
    expect_close("loss", (int)k, (double)b->loss[0], c->loss, 4e-7 * fabs(c->loss));
    for (int i = 0; i < kGoldenRows * kGoldenVocab; i++) {
      expect_close("dlogits", i, (double)b->gradient[i], c->gradient[i], 5e-7);
    }
  }
}

/* ---- data errors ---- */

static void test_bad_targets(void **state)
{
  batch *b = *state;
  const int64_t bad[] = {kVocab, -1, kIgnored, INT64_MAX, INT64_MIN};
  for (int reduction = TG_REDUCTION_NONE; reduction <= TG_REDUCTION_NUM_ITEMS; reduction++) {
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
      const int n = reduction == TG_REDUCTION_NONE ? kRows : 1;
      char message[160];
      tg_cross_entropy_fwd_args fwd = forward_args(b, 0, kRows, (tg_reduction)reduction);
      tg_cross_entropy_bwd_args bwd = backward_args(b, 0, kRows, (tg_reduction)reduction);
      fwd.has_ignore_index = bwd.has_ignore_index = false;
      fwd.num_items_in_batch = bwd.num_items_in_batch = reduction == TG_REDUCTION_NUM_ITEMS;
      b->targets[7] = bad[k];
      b->targets[9] = kVocab + 5; /* the first one is named */
      for (int i = 0; i < n; i++) {
        b->loss[i] = 3;
      }
      b->lse[0] = b->gradient[0] = 3;
      snprintf(message, sizeof message, "cross_entropy_fwd: targets[7]: expected 0 to %d, got %lld",
               kVocab - 1, (long long)bad[k]);
      must_fail(b->ctx, tg_cross_entropy_fwd(b->ctx, &fwd), TG_BAD_ARGUMENT, message);
      message[strlen("cross_entropy_")] = 'b';
      message[strlen("cross_entropy_") + 1] = 'w';
      must_fail(b->ctx, tg_cross_entropy_bwd(b->ctx, &bwd), TG_BAD_ARGUMENT, message);
      tg_cross_entropy_fwdbwd_args both = both_args(&fwd, &bwd);
      snprintf(message, sizeof message,
               "cross_entropy_fwdbwd: targets[7]: expected 0 to %d, got %lld", kVocab - 1,
               (long long)bad[k]);
      must_fail(b->ctx, tg_cross_entropy_fwdbwd(b->ctx, &both), TG_BAD_ARGUMENT, message);
      /* Nothing was written. */
      for (int i = 0; i < n; i++) {
        assert_true(b->loss[i] == 3);
      }
      assert_true(b->lse[0] == 3 && b->gradient[0] == 3);
      /* As an ignore_index even the strangest value is good. */
      fwd.ignore_index = bad[k];
      fwd.has_ignore_index = true;
      b->targets[9] = 0;
      must_run(b->ctx, tg_cross_entropy_fwd(b->ctx, &fwd));
      both.ignore_index = bad[k];
      both.has_ignore_index = true;
      must_run(b->ctx, tg_cross_entropy_fwdbwd(b->ctx, &both));
    }
  }
}

/* ---- ignored rows ---- */

static void test_ignored_rows_do_not_leak(void **state)
{
  batch *b = *state;
  for (int j = 0; j < kVocab; j++) {
    b->logits[3 * kVocab + j] = NAN;
    b->logits[8 * kVocab + j] = INFINITY;
  }
  b->targets[3] = b->targets[8] = kIgnored;
  tg_cross_entropy_fwd_args fwd = forward_args(b, 0, kRows, TG_REDUCTION_MEAN);
  tg_cross_entropy_bwd_args bwd = backward_args(b, 0, kRows, TG_REDUCTION_MEAN);
  bwd.dlogits = bwd.logits;
  must_run(b->ctx, tg_cross_entropy_fwd(b->ctx, &fwd));
  assert_true(isfinite(b->loss[0]) && b->loss[0] > 0);
  for (int i = 3; i <= 8; i += 5) {
    assert_true(b->token_loss[i] == 0 && b->log_prob[i] == 0 && b->lse[i] == 0);
    assert_int_equal(b->argmax[i], -1);
  }
  must_run(b->ctx, tg_cross_entropy_bwd(b->ctx, &bwd));
  for (int j = 0; j < kRows * kVocab; j++) {
    assert_true(isfinite(b->logits[j]));
  }
  for (int j = 0; j < kVocab; j++) {
    assert_int_equal(tgi_float_bits(b->logits[3 * kVocab + j]), 0);
    assert_int_equal(tgi_float_bits(b->logits[8 * kVocab + j]), 0);
  }
}

static void test_all_rows_ignored(void **state)
{
  batch *b = *state;
  for (int i = 0; i < kRows; i++) {
    b->targets[i] = kIgnored;
  }
  for (int reduction = TG_REDUCTION_NONE; reduction <= TG_REDUCTION_MEAN; reduction++) {
    tg_cross_entropy_fwd_args fwd = forward_args(b, 0, kRows, (tg_reduction)reduction);
    tg_cross_entropy_bwd_args bwd = backward_args(b, 0, kRows, (tg_reduction)reduction);
    memset(b->gradient, 0xff, sizeof b->gradient);
    must_run(b->ctx, tg_cross_entropy_fwd(b->ctx, &fwd));
    must_run(b->ctx, tg_cross_entropy_bwd(b->ctx, &bwd));
    if (reduction == TG_REDUCTION_MEAN) {
      expect_nan((double)b->loss[0]);
    } else {
      assert_true(b->loss[0] == 0);
    }
    for (int j = 0; j < kRows * kVocab; j++) {
      assert_true(b->gradient[j] == 0);
    }
  }
}

/* ---- the rest ---- */

static void test_argmax(void **state)
{
  batch *b = *state;
  const struct {
    int row, first, second;
    float value;
  } ties[] = {{0, 0, kVocab - 1, 50}, {1, 17, 18, 50},       {2, 1023, 1024, 50},
              {3, 1024, 1099, 50},    {4, 5, 600, INFINITY}, {5, kVocab - 1, kVocab - 1, 50},
              {6, 300, 301, NAN},     {7, 1099, 1099, NAN}};
  for (size_t k = 0; k < sizeof ties / sizeof ties[0]; k++) {
    b->logits[ties[k].row * kVocab + ties[k].first] = ties[k].value;
    b->logits[ties[k].row * kVocab + ties[k].second] = ties[k].value;
  }
  b->logits[6 * kVocab + 9] = 100; /* a NaN counts as larger */
  for (int j = 0; j < kVocab; j++) {
    b->logits[8 * kVocab + j] = -INFINITY;
    b->logits[9 * kVocab + j] = j < 40 ? -INFINITY : -3;
  }
  tg_cross_entropy_fwd_args a = forward_args(b, 0, kRows, TG_REDUCTION_NONE);
  for (int capped = 0; capped < 2; capped++) {
    a.softcap = capped ? 5.0f : 0.0f; /* all ties and more after the cap */
    must_run(b->ctx, tg_cross_entropy_fwd(b->ctx, &a));
    for (size_t k = 0; k < sizeof ties / sizeof ties[0]; k++) {
      assert_int_equal(b->argmax[ties[k].row], ties[k].first);
    }
    assert_int_equal(b->argmax[8], 0);
    assert_int_equal(b->argmax[9], 40);
  }
}

/* From kept logits a second backward gives the same; in place the bits are those of elsewhere. */
static void test_second_backward(void **state)
{
  batch *b = *state;
  static float first[kRows * kVocab];
  tg_cross_entropy_fwd_args fwd = forward_args(b, 0, kRows, TG_REDUCTION_MEAN);
  tg_cross_entropy_bwd_args bwd = backward_args(b, 0, kRows, TG_REDUCTION_MEAN);
  must_run(b->ctx, tg_cross_entropy_fwd(b->ctx, &fwd));
  must_run(b->ctx, tg_cross_entropy_bwd(b->ctx, &bwd));
  memcpy(first, b->gradient, sizeof first);
  must_run(b->ctx, tg_cross_entropy_bwd(b->ctx, &bwd));
  assert_memory_equal(b->gradient, first, sizeof first);
  bwd.dlogits = bwd.logits;
  must_run(b->ctx, tg_cross_entropy_bwd(b->ctx, &bwd));
  assert_memory_equal(b->logits, first, sizeof first);
}

/* The gradient scales with dloss, and 16-bit gradients are the f32 ones rounded once: p - 1 is
 * taken in f32, also where p rounds to 1. */
static void test_half_gradients(void **state)
{
  batch *b = *state;
  static uint16_t half[kRows * kVocab];
  float dloss = 3;
  for (int k = 0; k < 2; k++) {
    const tg_dtype t = k ? TG_F16 : TG_BF16;
    for (int i = 0; i < kRows; i++) {
      b->logits[i * kVocab + b->targets[i]] = (float)(i + 4);
    }
    for (int i = 0; i < kRows * kVocab; i++) {
      tgi_store(half, t, i, (double)b->logits[i]);
      b->logits[i] = (float)tgi_load(half, t, i);
    }
    tg_cross_entropy_fwd_args fwd = forward_args(b, 0, kRows, TG_REDUCTION_MEAN);
    tg_cross_entropy_bwd_args bwd = backward_args(b, 0, kRows, TG_REDUCTION_MEAN);
    bwd.dloss = tg_tensor_1d(&dloss, TG_F32, 1);
    must_run(b->ctx, tg_cross_entropy_fwd(b->ctx, &fwd));
    const float loss = b->loss[0];
    must_run(b->ctx, tg_cross_entropy_bwd(b->ctx, &bwd));
    fwd.logits = tg_tensor_2d(half, t, kRows, kVocab);
    bwd.logits = bwd.dlogits = fwd.logits;
    must_run(b->ctx, tg_cross_entropy_fwd(b->ctx, &fwd));
    assert_true(b->loss[0] == loss);
    must_run(b->ctx, tg_cross_entropy_bwd(b->ctx, &bwd));
    for (int i = 0; i < kRows * kVocab; i++) {
      expect_close("dlogits", i, tgi_load(half, t, i), tgi_round(t, (double)b->gradient[i]), 0);
    }
    for (int i = 0; i < kRows; i++) {
      const double g = tgi_load(half, t, i * kVocab + b->targets[i]);
      const double exact = 3 * expm1((double)b->log_prob[i]) / kRows;
      expect_close("dlogits at the target", i, g, exact, -exact * 0x1p-8 + 1e-7);
    }
  }
}

/* With none every row is on its own: the same bits alone as in the batch. */
static void test_rows_alone(void **state)
{
  batch *b = *state;
  float together[kRows];
  tg_cross_entropy_fwd_args a = forward_args(b, 0, kRows, TG_REDUCTION_NONE);
  a.token_loss = (tg_tensor){0};
  must_run(b->ctx, tg_cross_entropy_fwd(b->ctx, &a));
  memcpy(together, b->loss, sizeof together);
  for (int i = 0; i < kRows; i++) {
    a = forward_args(b, i, 1, TG_REDUCTION_NONE);
    must_run(b->ctx, tg_cross_entropy_fwd(b->ctx, &a));
    assert_true(b->loss[0] == together[i] && b->token_loss[i] == together[i]);
  }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(test_against_pytorch),  TEST(test_bad_targets), TEST(test_ignored_rows_do_not_leak),
      TEST(test_all_rows_ignored), TEST(test_argmax),      TEST(test_second_backward),
      TEST(test_half_gradients),   TEST(test_rows_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
