/* Cross-entropy where the spec driver cannot reach: PyTorch's values, targets out of range, ignored
 * rows, ties, 16-bit gradients, the directions against each other on every entry. */
#include "golden/cross_entropy/cross_entropy_values.h"
#include "tegula/tegula.h"

#include "core/device_state.h"
#include "core/half.h"
#include "core/tensor_view.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cpu_entries.h"
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

/* ---- the directions against each other ---- */

typedef struct agree_case {
  int64_t rows, vocab;
  tg_dtype dtype;
  tg_reduction reduction;
  float smoothing, z_loss, softcap;
} agree_case;

/* Memory of a context's device, handed out piece by piece. */
typedef struct device_memory {
  tg_context *ctx;
  char *base;
  size_t used, bytes;
} device_memory;

static device_memory open_memory(tg_context *ctx, size_t bytes)
{
  device_memory m = {ctx, NULL, 0, bytes};
  void *base;
  must_run(ctx, tg_memory_allocate(ctx, bytes, &base));
  m.base = base;
  return m;
}

/* A tensor [rows, cols], or [rows] with cols 0, with a copy of `from`, or with NaN in it. */
static tg_tensor place(device_memory *m, tg_dtype dtype, int64_t rows, int64_t cols,
                       const void *from)
{
  const size_t bytes = (size_t)(rows * (cols > 0 ? cols : 1)) * tg_dtype_bytes(dtype);
  char *at = m->base + m->used, *nan = malloc(bytes);
  m->used += (bytes + 255) / 256 * 256;
  assert_true(m->used <= m->bytes);
  memset(nan, 0xff, bytes);
  must_run(m->ctx, tg_memory_copy(m->ctx, at, bytes, from ? from : nan, bytes, bytes, 1));
  free(nan);
  return cols > 0 ? tg_tensor_2d(at, dtype, rows, cols) : tg_tensor_1d(at, dtype, rows);
}

static void expect_same(tg_context *ctx, const char *what, const agree_case *c, const tg_tensor *a,
                        const tg_tensor *b)
{
  const size_t bytes = (size_t)tgi_numel(a) * tg_dtype_bytes(a->dtype);
  char *x = malloc(bytes), *y = malloc(bytes);
  must_run(ctx, tg_memory_copy(ctx, x, bytes, a->data, bytes, bytes, 1));
  must_run(ctx, tg_memory_copy(ctx, y, bytes, b->data, bytes, bytes, 1));
  for (size_t i = 0; i < bytes; i++) {
    if (x[i] != y[i]) {
      fail_msg("%s[%zu] of %lld x %lld %s, reduction %d: expected the bits of one after the other",
               what, i / tg_dtype_bytes(a->dtype), (long long)c->rows, (long long)c->vocab,
               tg_dtype_name(c->dtype), (int)c->reduction);
    }
  }
  free(x);
  free(y);
}

/* The forward's outputs. */
static tg_cross_entropy_fwd_args place_results(device_memory *m, const agree_case *c)
{
  return (tg_cross_entropy_fwd_args){
      .loss = place(m, TG_F32, c->reduction == TG_REDUCTION_NONE ? c->rows : 1, 0, NULL),
      .token_loss = place(m, TG_F32, c->rows, 0, NULL),
      .log_prob = place(m, TG_F32, c->rows, 0, NULL),
      .lse = place(m, TG_F32, c->rows, 0, NULL),
      .argmax = place(m, TG_I64, c->rows, 0, NULL),
      .ignore_index = kIgnored,
      .num_items_in_batch = c->reduction == TG_REDUCTION_NUM_ITEMS ? 7 : 0,
      .label_smoothing = c->smoothing,
      .z_loss = c->z_loss,
      .softcap = c->softcap,
      .reduction = c->reduction,
      .has_ignore_index = true};
}

/* Both at once, with fewer and fewer results besides, the first time to other memory and then in
 * place: which kernel a GPU takes depends on what is asked for, the bits do not. */
static void check_both(device_memory *m, const agree_case *c, const void *logits,
                       const tg_cross_entropy_fwd_args *fwd, const tg_cross_entropy_bwd_args *bwd)
{
  tg_context *ctx = m->ctx;
  for (int fewer = 0; fewer < 3; fewer++) {
    const size_t used = m->used;
    tg_cross_entropy_fwd_args again = place_results(m, c);
    again.logits = fewer ? place(m, c->dtype, c->rows, c->vocab, logits) : fwd->logits;
    again.targets = fwd->targets;
    tg_cross_entropy_fwdbwd_args both = both_args(&again, bwd);
    both.dlogits = fewer ? again.logits : place(m, c->dtype, c->rows, c->vocab, NULL);
    if (fewer > 0) {
      both.argmax = (tg_tensor){0};
    }
    if (fewer > 1) {
      both.token_loss = both.log_prob = both.lse = (tg_tensor){0};
      must_run(ctx, tg_cross_entropy_fwdbwd_workspace(ctx, &both, &both.workspace_bytes));
      both.workspace = place(m, TG_U8, (int64_t)both.workspace_bytes + 1, 0, NULL).data;
    }
    must_run(ctx, tg_cross_entropy_fwdbwd(ctx, &both));
    must_run(ctx, tg_context_check(ctx));
    expect_same(ctx, "loss", c, &both.loss, &fwd->loss);
    expect_same(ctx, "dlogits", c, &both.dlogits, &bwd->dlogits);
    if (fewer < 2) {
      expect_same(ctx, "token_loss", c, &both.token_loss, &fwd->token_loss);
      expect_same(ctx, "log_prob", c, &both.log_prob, &fwd->log_prob);
      expect_same(ctx, "lse", c, &both.lse, &fwd->lse);
    }
    if (fewer < 1) {
      expect_same(ctx, "argmax", c, &both.argmax, &fwd->argmax);
    }
    m->used = used;
  }
}

static void check_agreement(device_memory *m, const agree_case *c)
{
  const int64_t n = c->rows * c->vocab;
  void *logits = malloc((size_t)n * tg_dtype_bytes(c->dtype));
  int64_t *targets = malloc((size_t)c->rows * sizeof *targets);
  float *dloss = malloc((size_t)c->rows * sizeof *dloss);
  uint32_t seed = 99;
  for (int64_t i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    tgi_store(logits, c->dtype, i, (double)(seed >> 8) * 0x1p-20 - 8);
  }
  for (int64_t i = 0; i < c->rows; i++) {
    targets[i] = i % 5 == 1 ? kIgnored : 9973 * i % c->vocab;
    dloss[i] = 1 + (float)i / 8;
  }
  m->used = 0;
  tg_cross_entropy_fwd_args fwd = place_results(m, c);
  fwd.logits = place(m, c->dtype, c->rows, c->vocab, logits);
  fwd.targets = place(m, TG_I64, c->rows, 0, targets);
  const tg_cross_entropy_bwd_args bwd = {.dloss = place(m, TG_F32, tgi_numel(&fwd.loss), 0, dloss),
                                         .logits = fwd.logits,
                                         .targets = fwd.targets,
                                         .lse = fwd.lse,
                                         .dlogits = place(m, c->dtype, c->rows, c->vocab, NULL),
                                         .ignore_index = fwd.ignore_index,
                                         .num_items_in_batch = fwd.num_items_in_batch,
                                         .label_smoothing = fwd.label_smoothing,
                                         .z_loss = fwd.z_loss,
                                         .softcap = fwd.softcap,
                                         .reduction = fwd.reduction,
                                         .has_ignore_index = true};
  must_run(m->ctx, tg_cross_entropy_fwd(m->ctx, &fwd));
  must_run(m->ctx, tg_cross_entropy_bwd(m->ctx, &bwd));
  check_both(m, c, logits, &fwd, &bwd);
  free(logits);
  free(targets);
  free(dloss);
}

static void check_all(tg_context *ctx, int64_t rows, const int64_t *vocabs, int num_vocabs)
{
  const tg_dtype dtypes[] = {TG_F32, TG_F16, TG_BF16};
  int64_t most = 0;
  for (int v = 0; v < num_vocabs; v++) {
    most = vocabs[v] > most ? vocabs[v] : most;
  }
  device_memory m = open_memory(ctx, (size_t)(4 * rows * (most * 4 + 4096)));
  for (int k = 0; k < 12 * num_vocabs; k++) {
    const agree_case c = {.rows = rows,
                          .vocab = vocabs[k / 12],
                          .dtype = dtypes[k % 3],
                          .reduction = (tg_reduction)(TG_REDUCTION_NONE + k % 4),
                          .smoothing = k % 12 > 4 ? 0.125f : 0,
                          .z_loss = k % 12 > 7 ? 0.0625f : 0,
                          .softcap = k % 12 == 11 ? 4.0f : 0};
    check_agreement(&m, &c);
  }
  tg_memory_free(ctx, m.base);
}

static void test_directions_agree(void **state)
{
  const int64_t vocabs[] = {1, 5, 1100, 3001};
  cpu_entries e = open_cpu_entries(2);
  (void)state;
  for (int i = 0; i < e.count; i++) {
    check_all(e.ctx[i], 12, vocabs, 4);
  }
  close_cpu_entries(&e);
}

/* A row whose target is found to be none by a kernel is NaN, and the others are as they were. */
static void check_late_target(tg_context *ctx)
{
  enum { kFew = 5, kBad = 2, kCols = 32776 };
  const int64_t targets[kFew] = {0, kCols - 1, kCols, 7, kIgnored};
  const size_t bytes = (size_t)kFew * kCols * sizeof(float);
  const agree_case c = {.rows = kFew, .vocab = kCols, .reduction = TG_REDUCTION_SUM};
  device_memory m = open_memory(ctx, bytes + 65536);
  float *logits = calloc(1, bytes), token_loss[kFew];
  tg_cross_entropy_fwd_args fwd = place_results(&m, &c);
  fwd.logits = place(&m, TG_F32, kFew, kCols, logits);
  fwd.targets = place(&m, TG_I64, kFew, 0, targets);
  const tg_cross_entropy_bwd_args bwd = {.dlogits = fwd.logits};
  tg_cross_entropy_fwdbwd_args both = both_args(&fwd, &bwd);
  both.argmax = (tg_tensor){0};
  must_run(ctx, tg_cross_entropy_fwdbwd(ctx, &both));
  must_fail(ctx, tg_context_check(ctx), TG_BAD_ARGUMENT,
            "cross_entropy_fwdbwd: targets[2]: expected 0 to 32775, got 32776");
  must_run(ctx, tg_memory_copy(ctx, logits, bytes, fwd.logits.data, bytes, bytes, 1));
  must_run(ctx, tg_memory_copy(ctx, token_loss, sizeof token_loss, fwd.token_loss.data,
                               sizeof token_loss, sizeof token_loss, 1));
  for (int64_t i = 0; i < kFew * kCols; i++) {
    const int64_t row = i / kCols;
    const double hit = i % kCols == targets[row] ? 1 : 0;
    if (row == kBad) {
      expect_nan((double)logits[i]);
    } else {
      const double exact = row == kFew - 1 ? 0 : 1.0 / kCols - hit;
      expect_close("dlogits", (int)i, (double)logits[i], exact, 4e-6 / kCols + 1e-7 * hit);
    }
  }
  for (int i = 0; i < kFew; i++) {
    const double exact = i == kFew - 1 ? 0 : log(kCols);
    if (i == kBad) {
      expect_nan((double)token_loss[i]);
    } else {
      expect_close("token_loss", i, (double)token_loss[i], exact, 2e-6);
    }
  }
  free(logits);
  tg_memory_free(ctx, m.base);
}

/* Also as on a GPU with few multiprocessors, where a block or a cluster has many rows. */
static void test_directions_agree_on_a_gpu(void **state)
{
  const int64_t vocabs[] = {1100, 32776, 50257, 50304, 151936};
  tg_context *whole = NULL;
  tg_context_options o = {.backend = TG_BACKEND_CUDA, .num_threads = 1};
  (void)state;
  if (tg_device_count() == 0 || tg_context_create(&o, &whole, NULL) != TG_OK) {
    skip();
  }
  const tgi_chain chain = tgi_registry_chain(TG_BACKEND_CUDA, &whole->processor, whole->device);
  for (int i = 0; i < 2 * chain.length; i++) {
    tg_context *ctx = NULL;
    o.entry = chain.entry[i / 2];
    assert_int_equal(tg_context_create(&o, &ctx, NULL), TG_OK);
    if (i % 2) {
      ctx->device->multiprocessors = 8;
    }
    check_all(ctx, 23, vocabs, 5);
    check_late_target(ctx);
    tg_context_destroy(ctx);
  }
  tg_context_destroy(whole);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(test_against_pytorch),
      TEST(test_bad_targets),
      TEST(test_ignored_rows_do_not_leak),
      TEST(test_all_rows_ignored),
      TEST(test_argmax),
      TEST(test_second_backward),
      TEST(test_half_gradients),
      TEST(test_rows_alone),
      cmocka_unit_test(test_directions_agree),
      cmocka_unit_test(test_directions_agree_on_a_gpu),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
