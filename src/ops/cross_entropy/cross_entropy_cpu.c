/* Cross-entropy on the CPU.
 *
 * Method     Forward: the row is read once, in pieces of 1024 logits that are widened (and capped)
 *            into a buffer in the first-level cache; a piece's maximum corrects the running sum of
 *            exponentials where it is a new one. Sums of pieces are kept in f64. Backward: one pass
 *            that turns each logit into its gradient through lse; the target's element is computed
 *            apart, in f32, before the row is overwritten.
 * Work       Chunks of rows of about 128 KiB; the rows' losses are added by one thread, in order.
 * Bound      Memory: forward reads the logits, backward reads and writes them; in narrow formats
 *            the exponential. Gradients in other memory, too large for the caches, are stored past
 *            them.
 */
#include "ops/cross_entropy/cross_entropy_rows.h"

#include <stdio.h>

enum { kChunkBytes = 128 << 10 };

typedef struct fwd_job {
  const tg_cross_entropy_fwd_args *a;
  target_rule rule;
  float *token_loss;
} fwd_job;

static int64_t argmax_of(const void *x, int t, int64_t vocab, const row_scan *r)
{
  const int64_t nan = isnan(r->sum) ? find_nan(x, t, vocab) : -1;
  return nan >= 0 ? nan : find_largest(x, t, vocab, r);
}

static void fwd_row(const fwd_job *job, int64_t i, int64_t target)
{
  const tg_cross_entropy_fwd_args *a = job->a;
  const int t = a->logits.dtype;
  const int64_t vocab = a->logits.shape[1];
  row_result r = {0};
  int64_t argmax = -1;
  if (!is_ignored(&job->rule, target)) {
    const void *x = tgi_row(&a->logits, i);
    row_scan scan = row_scan_start();
    scan_row(&scan, x, t, vocab, a->softcap, a->label_smoothing > 0);
    r = finish_row(&scan, cap_one(load_one(x, t, target), a->softcap), vocab,
                   (double)a->label_smoothing, (double)a->z_loss);
    argmax = tgi_present(&a->argmax) ? argmax_of(x, t, vocab, &scan) : 0;
  }
  job->token_loss[i] = r.loss;
  if (tgi_present(&a->log_prob)) {
    ((float *)a->log_prob.data)[i] = r.log_prob;
  }
  if (tgi_present(&a->lse)) {
    ((float *)a->lse.data)[i] = r.lse;
  }
  if (tgi_present(&a->argmax)) {
    tgi_store(a->argmax.data, a->argmax.dtype, i, (double)argmax);
  }
}

static void fwd_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const fwd_job *job = arg;
  const tg_tensor *targets = &job->a->targets;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    fwd_row(job, i, tgi_load_int(targets->data, targets->dtype, i));
  }
}

static int64_t grain_of(const tg_tensor *logits)
{
  const int64_t row_bytes = logits->shape[1] * (int64_t)tg_dtype_bytes(logits->dtype);
  return row_bytes < kChunkBytes ? kChunkBytes / row_bytes : 1;
}

size_t TGI_WORKSPACE(cross_entropy_fwd)(const tg_context *ctx, const tg_cross_entropy_fwd_args *a)
{
  const bool held = a->reduction == TG_REDUCTION_NONE || tgi_present(&a->token_loss);
  (void)ctx;
  return held ? 0 : (size_t)a->logits.shape[0] * sizeof(float);
}

tg_status TGI_KERNEL(cross_entropy_fwd)(const tg_context *ctx, const tg_cross_entropy_fwd_args *a)
{
  const int64_t rows = a->logits.shape[0];
  float *loss = a->loss.data;
  fwd_job job = {.a = a, .rule = TARGET_RULE("cross_entropy_fwd", a, a->logits.shape[1])};
  int64_t counted;
  const tg_status status = check_targets(ctx, &job.rule, &counted);
  if (status != TG_OK) {
    return status;
  }
  const bool separate = a->reduction == TG_REDUCTION_NONE;
  job.token_loss = tgi_present(&a->token_loss) ? a->token_loss.data
                   : separate                  ? loss
                                               : a->workspace;
  tgi_for(ctx, rows, grain_of(&a->logits), fwd_rows, &job);
  if (!separate) {
    double sum = 0;
    for (int64_t i = 0; i < rows; i++) {
      sum += (double)job.token_loss[i];
    }
    loss[0] = (float)(sum / divisor(&job.rule, counted));
  } else if (job.token_loss != loss) {
    memcpy(loss, job.token_loss, (size_t)rows * sizeof *loss);
  }
  return TG_OK;
}

void TGI_PLAN(cross_entropy_fwd)(const tg_context *ctx, const tg_cross_entropy_fwd_args *a,
                                 char *text, size_t bytes)
{
  (void)ctx;
  snprintf(text, bytes, "chunks of %lld rows, each read once in pieces of %d logits",
           (long long)grain_of(&a->logits), (int)kPiece);
}

/* ---- backward ---- */

static void bwd_any_row(const bwd_row *b, int64_t target, int t, bool stream)
{
  if (b->softcap > 0 && stream) {
    TGI_SWITCH_FLOAT(t, T, bwd_row_as(b, target, T, T, true, true));
  } else if (b->softcap > 0) {
    TGI_SWITCH_FLOAT(t, T, bwd_row_as(b, target, T, T, true, false));
  } else if (stream) {
    TGI_SWITCH_FLOAT(t, T, bwd_row_as(b, target, T, T, false, true));
  } else {
    TGI_SWITCH_FLOAT(t, T, bwd_row_as(b, target, T, T, false, false));
  }
}

typedef struct bwd_job {
  const tg_cross_entropy_bwd_args *a;
  target_rule rule;
  double divisor;
  bool stream;
} bwd_job;

static void bwd_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const bwd_job *job = arg;
  const tg_cross_entropy_bwd_args *a = job->a;
  const int64_t vocab = a->logits.shape[1];
  const float *dloss = a->dloss.data, *lse = a->lse.data;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    const int64_t target = tgi_load_int(a->targets.data, a->targets.dtype, i);
    void *dx = tgi_row(&a->dlogits, i);
    if (is_ignored(&job->rule, target)) {
      memset(dx, 0, (size_t)vocab * tg_dtype_bytes(a->dlogits.dtype));
      continue;
    }
    const double upstream =
        tgi_present(&a->dloss) ? (double)dloss[a->reduction == TG_REDUCTION_NONE ? i : 0] : 1;
    const bwd_row b = {.x = tgi_row(&a->logits, i),
                       .dx = dx,
                       .cols = vocab,
                       .lse = lse[i],
                       .softcap = a->softcap,
                       .p_scale = 1 + 2 * a->z_loss * lse[i],
                       .spread = a->label_smoothing / (float)vocab,
                       .hit = 1 - a->label_smoothing,
                       .upstream = (float)(upstream / job->divisor)};
    bwd_any_row(&b, target, a->logits.dtype, job->stream);
  }
  vf_stream_fence();
}

static bool bwd_streams(const tg_context *ctx, const tg_cross_entropy_bwd_args *a)
{
  const tg_tensor *t = &a->dlogits;
  return t->data != a->logits.data &&
         tgi_streamable(t->data, tgi_stride(t, 0), tg_dtype_bytes(t->dtype)) &&
         tgi_exceeds_cache(ctx, tgi_span_bytes(t));
}

tg_status TGI_KERNEL(cross_entropy_bwd)(const tg_context *ctx, const tg_cross_entropy_bwd_args *a)
{
  bwd_job job = {.a = a, .rule = TARGET_RULE("cross_entropy_bwd", a, a->logits.shape[1])};
  int64_t counted;
  const tg_status status = check_targets(ctx, &job.rule, &counted);
  if (status != TG_OK) {
    return status;
  }
  job.divisor = divisor(&job.rule, counted);
  job.stream = bwd_streams(ctx, a);
  tgi_for(ctx, a->logits.shape[0], grain_of(&a->logits), bwd_rows, &job);
  return TG_OK;
}

void TGI_PLAN(cross_entropy_bwd)(const tg_context *ctx, const tg_cross_entropy_bwd_args *a,
                                 char *text, size_t bytes)
{
  snprintf(text, bytes, "chunks of %lld rows, %s stores", (long long)grain_of(&a->logits),
           bwd_streams(ctx, a) ? "streaming" : "cached");
}
