/* The directions of cross-entropy against each other, on every entry of the machine's chains: both
 * in one call have the bits of one after the other. On a GPU a target out of range, too. */
#include "tegula/tegula.h"

#include "core/tensor_view.h"
#include "core/values/half.h"
#include "ops/chain.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cpu_entries.h"
#include "loss_batch.h"

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

/* ---- targets that a kernel finds ---- */

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
  const int64_t vocabs[] = {1100, 40968, 50257, 50304, 151936};
  tg_context *whole = NULL;
  tg_context_options o = {.backend = TG_BACKEND_CUDA, .num_threads = 1};
  (void)state;
  if (tg_device_count() == 0 || tg_context_create(&o, &whole, NULL) != TG_OK) {
    skip();
  }
  const tgi_chain chain = tgi_chain_of(TG_BACKEND_CUDA, &whole->processor, whole->device);
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
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_directions_agree),
      cmocka_unit_test(test_directions_agree_on_a_gpu),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
