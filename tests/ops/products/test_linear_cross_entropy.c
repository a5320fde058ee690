/* Linear head and cross-entropy where the spec driver cannot reach: the two ops that it stands for,
 * the directions against each other, chunks of every kind, micro batches, data errors. */
#include "tegula/tegula.h"

#include "core/values/half.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "head_batch.h"

/* ---- comparing ---- */

static void expect_near(const char *what, const float *got, const float *wanted, int n,
                        double bound)
{
  double scale = 0;
  for (int i = 0; i < n; i++) {
    scale = fmax(scale, fabs((double)wanted[i]));
  }
  for (int i = 0; i < n; i++) {
    if (!(fabs((double)got[i] - (double)wanted[i]) <= bound * scale)) {
      fail_msg("%s[%d]: expected %.9g, got %.9g (bound %.3g of %.3g)", what, i, (double)wanted[i],
               (double)got[i], bound, scale);
    }
  }
}

/* Bound 0: the same bits. */
static void expect_results(const results *got, const results *wanted, int num_losses, double bound)
{
  expect_near("loss", got->loss, wanted->loss, num_losses, bound);
  expect_near("token_loss", got->token_loss, wanted->token_loss, kRows, bound);
  expect_near("log_prob", got->log_prob, wanted->log_prob, kRows, bound);
  expect_near("lse", got->lse, wanted->lse, kRows, bound);
  expect_near("dhidden", got->dhidden, wanted->dhidden, kRows * kSize, bound);
  expect_near("dweight", got->dweight, wanted->dweight, kVocab * kSize, bound);
  expect_near("dbias", got->dbias, wanted->dbias, kVocab, bound);
  for (int i = 0; i < kRows; i++) {
    assert_int_equal(got->argmax[i], wanted->argmax[i]);
  }
}

/* ---- the two ops ---- */

static float logits[kRows * kVocab], dlogits[kRows * kVocab];

/* The same by linear and cross_entropy, into `second`. */
static void run_two_ops(batch *b, const tg_linear_cross_entropy_fwdbwd_args *a)
{
  results *r = &b->second;
  const tg_tensor z = tg_tensor_2d(logits, TG_F32, kRows, kVocab);
  const tg_tensor dz = tg_tensor_2d(dlogits, TG_F32, kRows, kVocab);
  memset(r->dweight, 0, sizeof r->dweight);
  memset(r->dbias, 0, sizeof r->dbias);
  const tg_linear_fwd_args product = {.x = a->hidden,
                                      .weight = a->weight,
                                      .bias = a->bias,
                                      .y = z,
                                      .workspace = b->workspace,
                                      .workspace_bytes = kSpaceBytes};
  must_run(b->ctx, tg_linear_fwd(b->ctx, &product));
  const tg_cross_entropy_fwd_args loss = {
      .logits = z,
      .targets = a->targets,
      .loss = tg_tensor_1d(r->loss, TG_F32, losses(a->reduction, kRows)),
      .token_loss = tg_tensor_1d(r->token_loss, TG_F32, kRows),
      .log_prob = tg_tensor_1d(r->log_prob, TG_F32, kRows),
      .lse = tg_tensor_1d(r->lse, TG_F32, kRows),
      .argmax = tg_tensor_1d(r->argmax, TG_I64, kRows),
      .ignore_index = a->ignore_index,
      .num_items_in_batch = a->num_items_in_batch,
      .label_smoothing = a->label_smoothing,
      .z_loss = a->z_loss,
      .softcap = a->softcap,
      .reduction = a->reduction,
      .has_ignore_index = true,
  };
  must_run(b->ctx, tg_cross_entropy_fwd(b->ctx, &loss));
  const tg_cross_entropy_bwd_args gradient = {
      .dloss = a->dloss,
      .logits = z,
      .targets = a->targets,
      .lse = loss.lse,
      .dlogits = dz,
      .ignore_index = a->ignore_index,
      .num_items_in_batch = a->num_items_in_batch,
      .label_smoothing = a->label_smoothing,
      .z_loss = a->z_loss,
      .softcap = a->softcap,
      .reduction = a->reduction,
      .has_ignore_index = true,
  };
  must_run(b->ctx, tg_cross_entropy_bwd(b->ctx, &gradient));
  const tg_linear_bwd_args products = {
      .dy = dz,
      .x = a->hidden,
      .weight = a->weight,
      .dx = tg_tensor_2d(r->dhidden, TG_F32, kRows, kSize),
      .dweight = tg_tensor_2d(r->dweight, TG_F32, kVocab, kSize),
      .dbias = tg_tensor_1d(r->dbias, TG_F32, kVocab),
      .workspace = b->workspace,
      .workspace_bytes = kSpaceBytes,
  };
  must_run(b->ctx, tg_linear_bwd(b->ctx, &products));
}

/* All chunks: one row or column, primes, sizes that do not divide, the whole, more than there is.
 */
static void test_against_two_ops(void **state)
{
  batch *b = *state;
  const int64_t rows[] = {0, 1, 2, 5, 7, 18, 19, 22, 23, 1000},
                cols[] = {0, 1, 16, 17, 97, 300, 301, 5000};
  for (int reduction = TG_REDUCTION_NONE; reduction <= TG_REDUCTION_NUM_ITEMS; reduction++) {
    for (int k = 0; k < 80; k++) {
      tg_linear_cross_entropy_fwdbwd_args a =
          both_args(b, &b->first, 0, kRows, (tg_reduction)reduction);
      a.chunk_rows = rows[k % 10];
      a.chunk_cols = cols[k / 10];
      a.label_smoothing = k % 3 ? 0.125f : 0;
      a.z_loss = k % 2 ? 0.0625f : 0;
      a.softcap = k % 7 == 1 ? 4.0f : 0;
      memset(&b->first, 0xff, sizeof b->first);
      memset(&b->second, 0xff, sizeof b->second);
      must_run(b->ctx, tg_linear_cross_entropy_fwdbwd(b->ctx, &a));
      run_two_ops(b, &a);
      expect_results(&b->first, &b->second, (int)losses(a.reduction, kRows), 2e-6);
    }
  }
}

/* The first NaN is the argmax wherever it lies in a chunk of columns, its start included. */
static void test_argmax_of_nan(void **state)
{
  batch *b = *state;
  const int64_t nan_at[] = {0, 1, 99, 100, 200, kVocab - 1};
  for (size_t i = 0; i < sizeof nan_at / sizeof nan_at[0]; i++) {
    tg_linear_cross_entropy_fwdbwd_args both = both_args(b, &b->first, 0, kRows, TG_REDUCTION_NONE);
    float *bias = both.bias.data;
    const float kept = bias[nan_at[i]];
    bias[nan_at[i]] = NAN;
    for (int64_t cols = 0; cols <= 100; cols += 50) {
      both.chunk_cols = cols;
      const tg_linear_cross_entropy_fwd_args a = forward_of(&both);
      must_run(b->ctx, tg_linear_cross_entropy_fwd(b->ctx, &a));
      for (int r = 0; r < kRows; r++) {
        if (b->first.argmax[r] != -1) { /* -1: ignored */
          assert_int_equal(b->first.argmax[r], nan_at[i]);
        }
      }
    }
    bias[nan_at[i]] = kept;
  }
}

/* Both at once gives the bits of one after the other; a second backward gives them again. */
static void test_directions_agree(void **state)
{
  batch *b = *state;
  const int64_t cols[] = {0, 100, 301};
  for (int k = 0; k < 6; k++) {
    tg_linear_cross_entropy_fwdbwd_args a = both_args(b, &b->first, 0, kRows, TG_REDUCTION_NONE);
    a.chunk_rows = k < 3 ? 0 : 4;
    a.chunk_cols = cols[k % 3];
    memset(&b->first, 0xff, sizeof b->first);
    memset(&b->second, 0xff, sizeof b->second);
    must_run(b->ctx, tg_linear_cross_entropy_fwdbwd(b->ctx, &a));
    tg_linear_cross_entropy_fwdbwd_args apart =
        both_args(b, &b->second, 0, kRows, TG_REDUCTION_NONE);
    apart.chunk_rows = a.chunk_rows;
    apart.chunk_cols = a.chunk_cols;
    const tg_linear_cross_entropy_fwd_args fwd = forward_of(&apart);
    const tg_linear_cross_entropy_bwd_args bwd = backward_of(&apart);
    must_run(b->ctx, tg_linear_cross_entropy_fwd(b->ctx, &fwd));
    for (int times = 0; times < 2; times++) {
      must_run(b->ctx, tg_linear_cross_entropy_bwd(b->ctx, &bwd));
      expect_results(&b->second, &b->first, kRows, 0);
    }
  }
}

/* ---- gradients ---- */

/* Each gradient has the same bits whatever else is asked for; what is not asked for needs no
 * memory. */
static void test_subsets(void **state)
{
  batch *b = *state;
  size_t full = 0;
  for (int chunked = 0; chunked < 2; chunked++) {
    for (int subset = 7; subset >= 0; subset--) {
      tg_linear_cross_entropy_fwdbwd_args a =
          both_args(b, subset == 7 ? &b->first : &b->second, 0, kRows, TG_REDUCTION_SUM);
      a.chunk_rows = chunked ? 4 : 0;
      a.chunk_cols = chunked ? 50 : 0;
      memset(&b->second, 0, sizeof b->second);
      a.dhidden = subset & 1 ? a.dhidden : (tg_tensor){0};
      a.dweight = subset & 2 ? a.dweight : (tg_tensor){0};
      a.dbias = subset & 4 ? a.dbias : (tg_tensor){0};
      size_t bytes = 0;
      must_run(b->ctx, tg_linear_cross_entropy_fwdbwd_workspace(b->ctx, &a, &bytes));
      must_run(b->ctx, tg_linear_cross_entropy_fwdbwd(b->ctx, &a));
      full = subset == 7 ? bytes : full;
      assert_true(bytes <= full && (bytes < full || (subset & 5) == 5));
      if (subset == 7) {
        continue;
      }
      if (subset & 1) {
        expect_near("dhidden", b->second.dhidden, b->first.dhidden, kRows * kSize, 0);
      }
      if (subset & 2) {
        expect_near("dweight", b->second.dweight, b->first.dweight, kVocab * kSize, 0);
      }
      if (subset & 4) {
        expect_near("dbias", b->second.dbias, b->first.dbias, kVocab, 0);
      }
    }
  }
}

/* Gradients of two micro batches, divided by the whole batch's items, add up to the whole batch's;
 * without `overwrite` they are added to what is there. */
static void test_micro_batches(void **state)
{
  batch *b = *state;
  const int cut = 9;
  tg_linear_cross_entropy_fwdbwd_args whole = both_args(b, &b->first, 0, kRows, TG_REDUCTION_MEAN);
  must_run(b->ctx, tg_linear_cross_entropy_fwdbwd(b->ctx, &whole));
  int64_t items = 0;
  for (int i = 0; i < kRows; i++) {
    items += b->targets[i] != kIgnored;
  }
  float loss = 0;
  for (int part = 0; part < 2; part++) {
    const int row = part ? cut : 0;
    tg_linear_cross_entropy_fwdbwd_args a =
        both_args(b, &b->second, row, part ? kRows - cut : cut, TG_REDUCTION_NUM_ITEMS);
    a.dloss = whole.dloss;
    a.num_items_in_batch = items;
    a.overwrite = part == 0;
    a.chunk_rows = 3;
    must_run(b->ctx, tg_linear_cross_entropy_fwdbwd(b->ctx, &a));
    loss += b->second.loss[row];
  }
  b->second.loss[0] = loss;
  expect_results(&b->second, &b->first, 1, 1e-6);
}

/* Rows that are ignored are as if they were not there, bit for bit. */
static void test_ignored_rows_cost_nothing(void **state)
{
  batch *b = *state;
  static float packed[kRows * kSize];
  int64_t targets[kRows];
  int rows = 0;
  for (int i = 0; i < kRows; i++) {
    if (b->targets[i] == kIgnored) {
      for (int k = 0; k < kSize; k++) {
        b->hidden[i * kSize + k] = NAN;
      }
    } else {
      memcpy(packed + rows * kSize, b->hidden + i * kSize, kSize * sizeof(float));
      targets[rows++] = b->targets[i];
    }
  }
  tg_linear_cross_entropy_fwdbwd_args a = both_args(b, &b->first, 0, kRows, TG_REDUCTION_MEAN);
  tg_linear_cross_entropy_fwdbwd_args few = both_args(b, &b->second, 0, rows, TG_REDUCTION_MEAN);
  a.chunk_rows = few.chunk_rows = 4;
  few.hidden.data = packed;
  few.targets.data = targets;
  few.has_ignore_index = false;
  few.ignore_index = 0;
  must_run(b->ctx, tg_linear_cross_entropy_fwdbwd(b->ctx, &a));
  must_run(b->ctx, tg_linear_cross_entropy_fwdbwd(b->ctx, &few));
  assert_true(b->first.loss[0] == b->second.loss[0]);
  expect_near("dweight", b->first.dweight, b->second.dweight, kVocab * kSize, 0);
  expect_near("dbias", b->first.dbias, b->second.dbias, kVocab, 0);
  for (int i = 0, r = 0; i < kRows; i++) {
    static const float zero[kSize];
    const bool ignored = b->targets[i] == kIgnored;
    expect_near("dhidden", b->first.dhidden + i * kSize,
                ignored ? zero : b->second.dhidden + r * kSize, kSize, 0);
    r += !ignored;
  }
}

/* A 16-bit dweight is the f32 one rounded once, whatever the chunks of rows. */
static void test_half_sums(void **state)
{
  batch *b = *state;
  static uint16_t hidden[kRows * kSize], weight[kVocab * kSize], dweight[kVocab * kSize];
  for (int k = 0; k < 2; k++) {
    const tg_dtype t = k ? TG_F16 : TG_BF16;
    for (int i = 0; i < kRows * kSize; i++) {
      tgi_store(hidden, t, i, (double)b->hidden[i]);
    }
    for (int i = 0; i < kVocab * kSize; i++) {
      tgi_store(weight, t, i, (double)b->weight[i]);
    }
    tg_linear_cross_entropy_fwdbwd_args a = both_args(b, &b->first, 0, kRows, TG_REDUCTION_SUM);
    a.hidden = tg_tensor_2d(hidden, t, kRows, kSize);
    a.weight = tg_tensor_2d(weight, t, kVocab, kSize);
    a.dhidden = (tg_tensor){0};
    a.chunk_rows = 2;
    a.chunk_cols = kVocab;
    must_run(b->ctx, tg_linear_cross_entropy_fwdbwd(b->ctx, &a));
    a.dweight = tg_tensor_2d(dweight, t, kVocab, kSize);
    must_run(b->ctx, tg_linear_cross_entropy_fwdbwd(b->ctx, &a));
    for (int i = 0; i < kVocab * kSize; i++) {
      const double wanted = tgi_round(t, (double)b->first.dweight[i]);
      if (tgi_load(dweight, t, i) != wanted) {
        fail_msg("dweight[%d]: expected %.9g, got %.9g", i, wanted, tgi_load(dweight, t, i));
      }
    }
  }
}

/* ---- data errors ---- */

static void test_bad_targets(void **state)
{
  batch *b = *state;
  const int64_t bad[] = {kVocab, -1, kIgnored, INT64_MAX, INT64_MIN};
  for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
    char message[160];
    tg_linear_cross_entropy_fwdbwd_args a = both_args(b, &b->first, 0, kRows, TG_REDUCTION_MEAN);
    const tg_linear_cross_entropy_fwdbwd_args good = a;
    a.has_ignore_index = false;
    for (int i = 0; i < kRows; i++) {
      b->targets[i] = i == 7 ? bad[k] : i == 9 ? kVocab + 5 : i;
    }
    memset(&b->first, 0x7f, sizeof b->first);
    memcpy(&b->second, &b->first, sizeof b->second);
    const tg_linear_cross_entropy_fwd_args fwd = forward_of(&a);
    const tg_linear_cross_entropy_bwd_args bwd = backward_of(&a);
    static const char *const name[] = {"fwd", "bwd", "fwdbwd"};
    for (int d = 0; d < 3; d++) {
      const tg_status status = d == 0   ? tg_linear_cross_entropy_fwd(b->ctx, &fwd)
                               : d == 1 ? tg_linear_cross_entropy_bwd(b->ctx, &bwd)
                                        : tg_linear_cross_entropy_fwdbwd(b->ctx, &a);
      snprintf(message, sizeof message,
               "linear_cross_entropy_%s: targets[7]: expected 0 to %d, got %lld", name[d],
               kVocab - 1, (long long)bad[k]);
      must_fail(b->ctx, status, TG_BAD_ARGUMENT, message);
    }
    assert_memory_equal(&b->first, &b->second, sizeof b->first);
    /* As an ignore_index even the strangest value is good. */
    tg_linear_cross_entropy_fwdbwd_args strange = good;
    strange.ignore_index = bad[k];
    b->targets[9] = 0;
    must_run(b->ctx, tg_linear_cross_entropy_fwdbwd(b->ctx, &strange));
  }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(test_against_two_ops),
      TEST(test_argmax_of_nan),
      TEST(test_directions_agree),
      TEST(test_subsets),
      TEST(test_micro_batches),
      TEST(test_half_sums),
      TEST(test_ignored_rows_cost_nothing),
      TEST(test_bad_targets),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
