/* Cross-entropy on the CPU.
 *
 * Method     Forward: the row is read once, in pieces of 1024 logits that are widened (and
 *            capped) into a buffer in the first-level cache; a piece's maximum corrects the
 *            running sum of exponentials where it is a new one. Sums of pieces are kept in f64.
 *            Backward: one pass that turns each logit into its gradient through lse; the
 *            target's element is computed apart, in f32, before the row is overwritten. Both:
 *            one after the other, row by row; the gradient finds the row in the cache.
 * Work       Chunks of rows of about 128 KiB; the rows' losses are added by one thread, in
 *            order.
 * Bound      Memory: forward reads the logits, backward and both read and write them; in narrow
 *            formats the exponential. Gradients in other memory, too large for the caches, are
 *            stored past them.
 */
#include "ops/cross_entropy/cross_entropy_call.h"
#include "ops/shared/loss/cross_entropy_rows.h"

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

/* The row's results, written; returns its lse. */
static float fwd_row(const fwd_job *job, int64_t i, int64_t target)
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
  return r.lse;
}

static void fwd_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const fwd_job *job = arg;
  const tg_tensor *targets = &job->a->targets;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    (void)fwd_row(job, i, tgi_load_int(targets->data, targets->dtype, i));
  }
}

static int64_t grain_of(const tg_tensor *logits)
{
  const int64_t row_bytes = logits->shape[1] * (int64_t)tg_dtype_bytes(logits->dtype);
  return row_bytes < kChunkBytes ? kChunkBytes / row_bytes : 1;
}

/* Where the rows' losses are kept until they are added. */
static float *token_losses(const tg_cross_entropy_fwd_args *a)
{
  return tgi_present(&a->token_loss)         ? a->token_loss.data
         : a->reduction == TG_REDUCTION_NONE ? a->loss.data
                                             : a->workspace;
}

static void add_losses(const fwd_job *job, int64_t counted)
{
  const int64_t rows = job->a->logits.shape[0];
  float *loss = job->a->loss.data;
  if (job->a->reduction != TG_REDUCTION_NONE) {
    double sum = 0;
    for (int64_t i = 0; i < rows; i++) {
      sum += (double)job->token_loss[i];
    }
    loss[0] = (float)(sum / divisor(&job->rule, counted));
  } else if (job->token_loss != loss) {
    memcpy(loss, job->token_loss, (size_t)rows * sizeof *loss);
  }
}

size_t TGI_WORKSPACE(cross_entropy_fwd)(const tg_context *ctx, const tg_cross_entropy_fwd_args *a)
{
  const bool held = a->reduction == TG_REDUCTION_NONE || tgi_present(&a->token_loss);
  (void)ctx;
  return held ? 0 : (size_t)a->logits.shape[0] * sizeof(float);
}

tg_status TGI_KERNEL(cross_entropy_fwd)(const tg_context *ctx, const tg_cross_entropy_fwd_args *a)
{
  fwd_job job = {a, TARGET_RULE("cross_entropy_fwd", a, a->logits.shape[1]), token_losses(a)};
  int64_t counted;
  const tg_status status = check_targets(ctx, &job.rule, &counted);
  if (status != TG_OK) {
    return status;
  }
  tgi_for(ctx, a->logits.shape[0], grain_of(&a->logits), fwd_rows, &job);
  add_losses(&job, counted);
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

/* dx may be x. `lse`: the row's, if it counts. */
static void bwd_any_target(const bwd_job *job, int64_t i, int64_t target, float lse)
{
  const tg_cross_entropy_bwd_args *a = job->a;
  const int64_t vocab = a->logits.shape[1];
  const float *dloss = a->dloss.data;
  void *dx = tgi_row(&a->dlogits, i);
  if (is_ignored(&job->rule, target)) {
    memset(dx, 0, (size_t)vocab * tg_dtype_bytes(a->dlogits.dtype));
    return;
  }
  const double upstream =
      tgi_present(&a->dloss) ? (double)dloss[a->reduction == TG_REDUCTION_NONE ? i : 0] : 1;
  const bwd_row b = {.x = tgi_row(&a->logits, i),
                     .dx = dx,
                     .cols = vocab,
                     .lse = lse,
                     .softcap = a->softcap,
                     .p_scale = 1 + 2 * a->z_loss * lse,
                     .spread = a->label_smoothing / (float)vocab,
                     .hit = 1 - a->label_smoothing,
                     .upstream = (float)(upstream / job->divisor)};
  bwd_any_row(&b, target, a->logits.dtype, job->stream);
}

static void bwd_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const bwd_job *job = arg;
  const tg_cross_entropy_bwd_args *a = job->a;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    const int64_t target = tgi_load_int(a->targets.data, a->targets.dtype, i);
    bwd_any_target(job, i, target, ((const float *)a->lse.data)[i]);
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

/* ---- both ---- */

typedef struct both_job {
  fwd_job forward;
  bwd_job backward;
} both_job;

static void both_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const both_job *job = arg;
  const tg_tensor *targets = &job->forward.a->targets;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    const int64_t target = tgi_load_int(targets->data, targets->dtype, i);
    bwd_any_target(&job->backward, i, target, fwd_row(&job->forward, i, target));
  }
  vf_stream_fence();
}

size_t TGI_WORKSPACE(cross_entropy_fwdbwd)(const tg_context *ctx,
                                           const tg_cross_entropy_fwdbwd_args *a)
{
  const tg_cross_entropy_fwd_args f = forward_of(a);
  return TGI_WORKSPACE(cross_entropy_fwd)(ctx, &f);
}

tg_status TGI_KERNEL(cross_entropy_fwdbwd)(const tg_context *ctx,
                                           const tg_cross_entropy_fwdbwd_args *a)
{
  const tg_cross_entropy_fwd_args f = forward_of(a);
  const tg_cross_entropy_bwd_args b = backward_of(a);
  const target_rule rule = TARGET_RULE("cross_entropy_fwdbwd", a, a->logits.shape[1]);
  int64_t counted;
  const tg_status status = check_targets(ctx, &rule, &counted);
  if (status != TG_OK) {
    return status;
  }
  both_job job = {{&f, rule, token_losses(&f)},
                  {&b, rule, divisor(&rule, counted), bwd_streams(ctx, &b)}};
  tgi_for(ctx, a->logits.shape[0], grain_of(&a->logits), both_rows, &job);
  add_losses(&job.forward, counted);
  return TG_OK;
}

void TGI_PLAN(cross_entropy_fwdbwd)(const tg_context *ctx, const tg_cross_entropy_fwdbwd_args *a,
                                    char *text, size_t bytes)
{
  const tg_cross_entropy_bwd_args b = backward_of(a);
  snprintf(text, bytes, "chunks of %lld rows, each forward, then backward; %s stores",
           (long long)grain_of(&a->logits), bwd_streams(ctx, &b) ? "streaming" : "cached");
}
