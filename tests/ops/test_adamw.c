/* AdamW and the global norm where the spec driver cannot reach: PyTorch's values, clipping without
 * a look at the norm, gradients that are not finite, lists. */
#include "golden/adamw/adamw_values.h"
#include "tegula/tegula.h"

#include "core/values/half.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "expect_op.h"

enum { kCount = kGoldenCount };

typedef struct fixture {
  tg_context *ctx;
  float weight[kCount], grad[kCount], avg[kCount], sq[kCount];
  float norm, clip;
  tg_tensor list[4]; /* params, grads, exp_avg, exp_avg_sq: lists of one */
  _Alignas(64) unsigned char workspace[256];
} fixture;

static int set_up(void **state)
{
  fixture *f = aligned_alloc(64, (sizeof *f + 63) / 64 * 64);
  memset(f, 0, sizeof *f);
  const tg_context_options o = {.backend = TG_BACKEND_CPU, .num_threads = 2};
  assert_int_equal(tg_context_create(&o, &f->ctx, NULL), TG_OK);
  memcpy(f->weight, kGoldenStart, sizeof f->weight);
  memcpy(f->grad, kGoldenGradients, sizeof f->grad);
  f->list[0] = tg_tensor_1d(f->weight, TG_F32, kCount);
  f->list[1] = tg_tensor_1d(f->grad, TG_F32, kCount);
  f->list[2] = tg_tensor_1d(f->avg, TG_F32, kCount);
  f->list[3] = tg_tensor_1d(f->sq, TG_F32, kCount);
  *state = f;
  return 0;
}

static int tear_down(void **state)
{
  fixture *f = *state;
  tg_context_destroy(f->ctx);
  free(f);
  return 0;
}

static tg_adamw_step_args step_args(fixture *f, int64_t step)
{
  return (tg_adamw_step_args){.params = &f->list[0],
                              .grads = &f->list[1],
                              .exp_avg = &f->list[2],
                              .exp_avg_sq = &f->list[3],
                              .num_tensors = 1,
                              .step = step,
                              .lr = 3e-3,
                              .beta1 = 0.9,
                              .beta2 = 0.999,
                              .eps = 1e-8,
                              .weight_decay = 0.1};
}

static tg_global_norm_fwd_args norm_args(fixture *f)
{
  return (tg_global_norm_fwd_args){.tensors = &f->list[1],
                                   .num_tensors = 1,
                                   .norm = tg_tensor_1d(&f->norm, TG_F32, 1),
                                   .clip = tg_tensor_1d(&f->clip, TG_F32, 1),
                                   .max_norm = 1.5f,
                                   .workspace = f->workspace,
                                   .workspace_bytes = sizeof f->workspace};
}

/* max|a - b| <= 2^-22 max|b|: as near as two orders of f32 operations can be asked to agree. */
static void expect_near(const char *what, const float *got, const float *wanted)
{
  double largest = 0;
  for (int i = 0; i < kCount; i++) {
    largest = fmax(largest, fabs((double)wanted[i]));
  }
  for (int i = 0; i < kCount; i++) {
    if (!(fabs((double)got[i] - (double)wanted[i]) <= 0x1p-22 * largest)) {
      fail_msg("%s[%d]: expected %.9g, got %.9g", what, i, (double)wanted[i], (double)got[i]);
    }
  }
}

/* ---- PyTorch's values ---- */

static void run_golden(fixture *f, bool clipped)
{
  for (int step = 1; step <= kGoldenSteps; step++) {
    tg_adamw_step_args a = step_args(f, step);
    memcpy(f->grad, kGoldenGradients + (step - 1) * kCount, sizeof f->grad);
    if (clipped) {
      const tg_global_norm_fwd_args norm = norm_args(f);
      must_run(f->ctx, tg_global_norm_fwd(f->ctx, &norm));
      const float want = kGoldenNorms[step - 1];
      if (!(fabsf(f->norm - want) <= 2e-7f * want)) {
        fail_msg("norm of step %d: expected %.9g, got %.9g", step, (double)want, (double)f->norm);
      }
      a.clip = tg_tensor_1d(&f->clip, TG_F32, 1);
    }
    must_run(f->ctx, tg_adamw_step(f->ctx, &a));
  }
}

static void test_against_pytorch(void **state)
{
  fixture *f = *state;
  run_golden(f, false);
  expect_near("exp_avg", f->avg, kPlainExpAvg);
  expect_near("exp_avg_sq", f->sq, kPlainExpAvgSq);
  expect_near("params", f->weight, kPlainWeight);
}

static void test_clipping_against_pytorch(void **state)
{
  fixture *f = *state;
  run_golden(f, true);
  expect_near("exp_avg", f->avg, kClippedExpAvg);
  expect_near("exp_avg_sq", f->sq, kClippedExpAvgSq);
  expect_near("params", f->weight, kClippedWeight);
}

/* ---- gradients that are not finite ---- */

static void test_bad_gradients_reach_no_weight(void **state)
{
  fixture *f = *state;
  const float bad[] = {NAN, INFINITY, -INFINITY};
  for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
    f->grad[36] = bad[k];
    const tg_global_norm_fwd_args norm = norm_args(f);
    must_run(f->ctx, tg_global_norm_fwd(f->ctx, &norm));
    assert_true(k == 0 ? isnan(f->norm) : f->norm == INFINITY);
    assert_true(isnan(f->clip));
    tg_adamw_step_args a = step_args(f, 1);
    a.clip = tg_tensor_1d(&f->clip, TG_F32, 1);
    const float values[] = {f->clip, INFINITY, -1};
    for (int i = 0; i < 3; i++) {
      f->clip = values[i];
      assert_int_equal(tg_adamw_step(f->ctx, &a), TG_BAD_ARGUMENT);
      assert_non_null(strstr(tg_context_message(f->ctx),
                             "adamw_step: clip[0]: expected a finite number >= 0, got "));
    }
    assert_memory_equal(f->weight, kGoldenStart, sizeof f->weight);
    for (int i = 0; i < kCount; i++) {
      assert_true(f->avg[i] == 0 && f->sq[i] == 0);
    }
  }
  /* Without clip the bad element alone is lost. */
  tg_adamw_step_args a = step_args(f, 1);
  must_run(f->ctx, tg_adamw_step(f->ctx, &a));
  for (int i = 0; i < kCount; i++) {
    assert_true(i == 36 ? isnan(f->weight[i]) : isfinite(f->weight[i]));
  }
}

static void test_norm_of_nothing(void **state)
{
  fixture *f = *state;
  tg_global_norm_fwd_args a = norm_args(f);
  a.num_tensors = 0;
  a.tensors = NULL;
  f->norm = f->clip = NAN;
  must_run(f->ctx, tg_global_norm_fwd(f->ctx, &a));
  assert_true(f->norm == 0 && f->clip == 1);
}

/* ---- factors ---- */

/* grad_scale and clip multiply; grad_scale counts only with its flag. */
static void test_gradient_factors(void **state)
{
  fixture *f = *state;
  float expected[kCount];
  tg_adamw_step_args a = step_args(f, 1);
  for (int i = 0; i < kCount; i++) {
    f->grad[i] = 0.125f * kGoldenGradients[i];
  }
  must_run(f->ctx, tg_adamw_step(f->ctx, &a));
  memcpy(expected, f->avg, sizeof expected);

  memcpy(f->grad, kGoldenGradients, sizeof f->grad);
  memset(f->avg, 0, sizeof f->avg);
  f->clip = 0.5f;
  a.clip = tg_tensor_1d(&f->clip, TG_F32, 1);
  a.grad_scale = 0.25;
  a.has_grad_scale = true;
  must_run(f->ctx, tg_adamw_step(f->ctx, &a));
  assert_memory_equal(f->avg, expected, sizeof expected);

  memset(f->avg, 0, sizeof f->avg);
  f->clip = 0.125f;
  a.grad_scale = NAN;
  a.has_grad_scale = false;
  must_run(f->ctx, tg_adamw_step(f->ctx, &a));
  assert_memory_equal(f->avg, expected, sizeof expected);
  a.has_grad_scale = true;
  must_fail(f->ctx, tg_adamw_step(f->ctx, &a), TG_BAD_ARGUMENT,
            "adamw_step: grad_scale: expected a finite number, got nan");
}

/* Betas and eps of 0 where they are asked for: each step is then lr in the gradient's direction. */
static void test_zeros(void **state)
{
  fixture *f = *state;
  tg_adamw_step_args a = step_args(f, 1);
  a.beta1 = a.beta2 = a.eps = 0;
  must_fail(f->ctx, tg_adamw_step(f->ctx, &a), TG_BAD_ARGUMENT,
            "adamw_step: beta1: expected a number > 0 and < 1, got 0");
  a.allow_zero = true;
  must_run(f->ctx, tg_adamw_step(f->ctx, &a));
  for (int i = 0; i < kCount; i++) {
    const float kept = kGoldenStart[i] * (float)(1 - a.lr * a.weight_decay);
    const float want = kept - copysignf((float)a.lr, f->grad[i]);
    if (!(fabsf(f->weight[i] - want) <= 1e-6f * fmaxf(1, fabsf(want)))) {
      fail_msg("params[%d]: expected %.9g, got %.9g", i, (double)want, (double)f->weight[i]);
    }
  }
  assert_memory_equal(f->avg, f->grad, sizeof f->avg);
  a.beta1 = 1;
  must_fail(f->ctx, tg_adamw_step(f->ctx, &a), TG_BAD_ARGUMENT,
            "adamw_step: beta1: expected a number >= 0 and < 1, got 1");
  a.beta1 = 0;
  a.eps = -1e-8;
  must_fail(f->ctx, tg_adamw_step(f->ctx, &a), TG_BAD_ARGUMENT,
            "adamw_step: eps: expected a finite number >= 0, got -1e-08");
}

/* With master weights 16-bit params are their rounding, whatever they held, and updates too small
 * for 16 bits are not lost. */
static void test_master_weights(void **state)
{
  fixture *f = *state;
  uint16_t half[kCount];
  float expected[kCount];
  tg_adamw_step_args a = step_args(f, 1);
  a.lr = 1e-5;
  must_run(f->ctx, tg_adamw_step(f->ctx, &a));
  memcpy(expected, f->weight, sizeof expected);

  const tg_tensor master = f->list[0];
  memcpy(f->weight, kGoldenStart, sizeof f->weight);
  memset(f->avg, 0, sizeof f->avg);
  memset(f->sq, 0, sizeof f->sq);
  memset(half, 0xff, sizeof half);
  f->list[0] = tg_tensor_1d(half, TG_BF16, kCount);
  a.master = &master;
  must_run(f->ctx, tg_adamw_step(f->ctx, &a));
  assert_memory_equal(f->weight, expected, sizeof expected);
  for (int i = 0; i < kCount; i++) {
    assert_int_equal(half[i], tgi_f32_to_bf16(expected[i]));
  }
}

/* ---- lists ---- */

/* Three tensors in one call, one of them empty, are as many calls. */
static void test_one_call_for_all(void **state)
{
  fixture *f = *state;
  const int cut[] = {0, 20, 20, kCount};
  float expected[kCount];
  tg_adamw_step_args a = step_args(f, 1);
  must_run(f->ctx, tg_adamw_step(f->ctx, &a));
  memcpy(expected, f->weight, sizeof expected);

  tg_tensor lists[4][3];
  memcpy(f->weight, kGoldenStart, sizeof f->weight);
  memset(f->avg, 0, sizeof f->avg);
  memset(f->sq, 0, sizeof f->sq);
  for (int k = 0; k < 4; k++) {
    for (int i = 0; i < 3; i++) {
      lists[k][i] = tg_tensor_1d((float *)f->list[k].data + cut[i], TG_F32, cut[i + 1] - cut[i]);
    }
  }
  a.params = lists[0], a.grads = lists[1], a.exp_avg = lists[2], a.exp_avg_sq = lists[3];
  a.num_tensors = 3;
  must_run(f->ctx, tg_adamw_step(f->ctx, &a));
  assert_memory_equal(f->weight, expected, sizeof expected);

  tg_global_norm_fwd_args norm = norm_args(f);
  must_run(f->ctx, tg_global_norm_fwd(f->ctx, &norm));
  const float whole = f->norm;
  norm.tensors = lists[1];
  norm.num_tensors = 3;
  must_run(f->ctx, tg_global_norm_fwd(f->ctx, &norm));
  assert_true(fabsf(f->norm - whole) <= 1e-6f * whole);

  a.num_tensors = 0;
  must_run(f->ctx, tg_adamw_step(f->ctx, &a));
  assert_memory_equal(f->weight, expected, sizeof expected);
}

static void test_list_errors(void **state)
{
  fixture *f = *state;
  tg_tensor lists[4][2];
  tg_adamw_step_args a = step_args(f, 1);
  for (int k = 0; k < 4; k++) {
    lists[k][0] = tg_tensor_1d(f->list[k].data, TG_F32, 16);
    lists[k][1] = tg_tensor_1d((float *)f->list[k].data + 16, TG_F32, 16);
  }
  a.params = lists[0], a.grads = lists[1], a.exp_avg = lists[2], a.exp_avg_sq = lists[3];
  a.num_tensors = 2;
  lists[2][1].shape[0] = 15;
  must_fail(f->ctx, tg_adamw_step(f->ctx, &a), TG_BAD_SHAPE,
            "adamw_step: exp_avg[1]: expected f32 [16], got f32 [15]");
  lists[2][1].shape[0] = 16;
  lists[3][1].data = f->avg + 20;
  must_fail(f->ctx, tg_adamw_step(f->ctx, &a), TG_BAD_ARGUMENT,
            "adamw_step: exp_avg_sq[1]: expected memory apart from exp_avg[1], got an overlap");
  lists[3][1].data = f->sq + 16;
  a.exp_avg_sq = NULL;
  must_fail(f->ctx, tg_adamw_step(f->ctx, &a), TG_BAD_ARGUMENT,
            "adamw_step: exp_avg_sq: expected 2 tensors, got NULL");
  assert_memory_equal(f->weight, kGoldenStart, sizeof f->weight);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(test_against_pytorch),
      TEST(test_clipping_against_pytorch),
      TEST(test_bad_gradients_reach_no_weight),
      TEST(test_norm_of_nothing),
      TEST(test_gradient_factors),
      TEST(test_zeros),
      TEST(test_master_weights),
      TEST(test_one_call_for_all),
      TEST(test_list_errors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
