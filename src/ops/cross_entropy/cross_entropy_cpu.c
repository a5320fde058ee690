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
#include "cpu/exp.h"
#include "cpu/tanh.h"
#include "ops/cross_entropy/cross_entropy_targets.h"

#include <float.h>
#include <stdio.h>

enum { kChunkBytes = 128 << 10, kPiece = 1024, kLineBytes = 64 };

/* What one read of a row yields. */
typedef struct row_scan {
  float largest;     /* logit, before the cap */
  int64_t piece;     /* first element of the first piece that holds it */
  float shift;       /* maximum of z, but finite */
  double sum, z_sum; /* of exp(z - shift); of z */
} row_scan;

TGI_INLINE vf cap(vf x, float softcap, bool capped)
{
  if (capped) {
    const vf c = vf_set1(softcap);
    x = c * vf_tanh(x / c);
  }
  return x;
}

static float cap_one(float x, float softcap)
{
  float z[TGI_LANES];
  if (softcap == 0) {
    return x;
  }
  vf_store_f32(z, cap(vf_set1(x), softcap, true));
  return z[0];
}

/* Fills the buffer with z of n logits and -infinity up to a whole vector; returns their maximum
 * before the cap. NaN counts in the sum, not here. */
TGI_INLINE float widen_piece(const void *x, int t, int64_t first, int64_t n, float softcap,
                             bool capped, float *z)
{
  vf most = vf_set1(-INFINITY);
  int64_t j = 0;
  for (; j + TGI_LANES <= n; j += TGI_LANES) {
    const vf v = vf_load(x, t, first + j);
    most = vf_max(v, most);
    vf_store_f32(z + j, cap(v, softcap, capped));
  }
  if (j < n) {
    float rest[TGI_LANES];
    const vf v = vf_load_part(x, t, first + j, n - j);
    vf_store_f32(rest, vf_set1(-INFINITY));
    vf_store_part_f32(rest, n - j, v);
    most = vf_max(vf_load_f32(rest), most);
    vf_store_f32(z + j, vf_set1(-INFINITY));
    vf_store_part_f32(z + j, n - j, cap(v, softcap, capped));
  }
  return vf_hmax(most);
}

/* Sums the piece's exponentials; meanwhile the next piece, at `ahead`, comes to the cache: the
 * processor's own prefetch stops while nothing is read. */
TGI_INLINE double sum_of_exp(const float *z, int64_t n, float shift, uintptr_t ahead, int t)
{
  const vf m = vf_set1(shift);
  const int64_t step = 4 * TGI_LANES, element = t == TG_F32 ? 4 : 2;
  vf s[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
  int64_t j = 0;
  for (; j + step <= n; j += step) {
    for (int64_t byte = j * element; byte < (j + step) * element; byte += kLineBytes) {
      __builtin_prefetch((const void *)(ahead + (uintptr_t)byte));
    }
    for (int k = 0; k < 4; k++) {
      s[k] = s[k] + vf_exp(vf_load_f32(z + j + k * TGI_LANES) - m);
    }
  }
  for (; j < n; j += TGI_LANES) {
    s[0] = s[0] + vf_exp(vf_load_f32(z + j) - m);
  }
  return (double)vf_sum((s[0] + s[1]) + (s[2] + s[3]));
}

static double sum_of(const float *z, int64_t n)
{
  vf s = vf_zero();
  int64_t j = 0;
  for (; j + TGI_LANES <= n; j += TGI_LANES) {
    s = s + vf_load_f32(z + j);
  }
  return (double)vf_sum(s + vf_load_part_f32(z + j, n - j));
}

TGI_INLINE row_scan scan_row_as(const void *x, int64_t vocab, float softcap, bool smoothed, int t,
                                bool capped)
{
  float z[kPiece + TGI_LANES];
  row_scan r = {-INFINITY, 0, -FLT_MAX, 0, 0};
  for (int64_t first = 0; first < vocab; first += kPiece) {
    const int64_t n = tgi_min_i64(kPiece, vocab - first);
    const float largest = widen_piece(x, t, first, n, softcap, capped, z);
    if (largest > r.largest) {
      const float m = capped ? cap_one(largest, softcap) : largest;
      r.largest = largest;
      r.piece = first;
      if (m > r.shift) {
        r.sum *= exp((double)r.shift - (double)m);
        r.shift = m;
      }
    }
    const uintptr_t ahead = (uintptr_t)x + (uintptr_t)(first + kPiece) * (t == TG_F32 ? 4 : 2);
    r.sum += sum_of_exp(z, n, r.shift, ahead, t);
    if (smoothed) {
      r.z_sum += sum_of(z, n);
    }
  }
  return r;
}

static row_scan scan_row(const void *x, int t, int64_t vocab, float softcap, bool smoothed)
{
  row_scan r = {0};
  if (softcap > 0) {
    TGI_SWITCH_FLOAT(t, T, r = scan_row_as(x, vocab, softcap, smoothed, T, true));
  } else {
    TGI_SWITCH_FLOAT(t, T, r = scan_row_as(x, vocab, softcap, smoothed, T, false));
  }
  return r;
}

static float load_one(const void *x, int t, int64_t j)
{
  return (float)tgi_load(x, (tg_dtype)t, j);
}

static int64_t find_largest(const void *x, int t, int64_t vocab, const row_scan *r)
{
  for (int64_t j = 0; isnan(r->sum) && j < vocab; j++) {
    if (isnan(load_one(x, t, j))) {
      return j;
    }
  }
  int64_t j = r->piece;
  while (j + 1 < vocab && load_one(x, t, j) != r->largest) {
    j++;
  }
  return j;
}

typedef struct fwd_job {
  const tg_cross_entropy_fwd_args *a;
  target_rule rule;
  float *token_loss;
} fwd_job;

static void fwd_row(const fwd_job *job, int64_t i, int64_t target)
{
  const tg_cross_entropy_fwd_args *a = job->a;
  const int t = a->logits.dtype;
  const int64_t vocab = a->logits.shape[1];
  const double smoothing = (double)a->label_smoothing;
  row_scan r = {0};
  double lse = 0, log_prob = 0, loss = 0;
  int64_t argmax = -1;
  if (!is_ignored(&job->rule, target)) {
    const void *x = tgi_row(&a->logits, i);
    r = scan_row(x, t, vocab, a->softcap, smoothing > 0);
    lse = (double)r.shift + log(r.sum);
    log_prob = (double)cap_one(load_one(x, t, target), a->softcap) - lse;
    loss = -(1 - smoothing) * log_prob;
    if (smoothing > 0) {
      loss -= smoothing * (r.z_sum / (double)vocab - lse);
    }
    if (a->z_loss > 0) {
      loss += (double)a->z_loss * lse * lse;
    }
    argmax = tgi_present(&a->argmax) ? find_largest(x, t, vocab, &r) : 0;
  }
  job->token_loss[i] = (float)loss;
  if (tgi_present(&a->log_prob)) {
    ((float *)a->log_prob.data)[i] = (float)log_prob;
  }
  if (tgi_present(&a->lse)) {
    ((float *)a->lse.data)[i] = (float)lse;
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
  fwd_job job = {.a = a, .rule = TARGET_RULE("cross_entropy_fwd", a)};
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

typedef struct bwd_row {
  const void *x;
  void *dx;
  int64_t vocab;
  float lse, softcap;
  float p_scale;  /* 1 + 2 z_loss lse */
  float spread;   /* label_smoothing / vocab */
  float hit;      /* 1 - label_smoothing */
  float upstream; /* dloss / n */
} bwd_row;

/* The gradient of logits x, `hit` being what the target's element loses. */
TGI_INLINE vf gradient(vf x, const bwd_row *b, float hit, bool capped)
{
  vf slope = vf_set1(b->upstream);
  if (capped) {
    const vf t = vf_tanh(x / vf_set1(b->softcap));
    x = vf_set1(b->softcap) * t;
    slope = (vf_set1(1.0f) - t * t) * slope;
  }
  const vf p = vf_exp(x - vf_set1(b->lse));
  return ((vf_set1(b->p_scale) * p - vf_set1(b->spread)) - vf_set1(hit)) * slope;
}

TGI_INLINE void bwd_row_as(const bwd_row *b, int64_t target, int t, bool capped, bool stream)
{
  const vf g = gradient(vf_set1(load_one(b->x, t, target)), b, b->hit, capped);
  int64_t j = 0;
  for (; j + 2 * TGI_LANES <= b->vocab; j += 2 * TGI_LANES) {
    const vf g0 = gradient(vf_load(b->x, t, j), b, 0, capped);
    const vf g1 = gradient(vf_load(b->x, t, j + TGI_LANES), b, 0, capped);
    vf_put(b->dx, t, j, g0, stream);
    vf_put(b->dx, t, j + TGI_LANES, g1, stream);
  }
  for (; j < b->vocab; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, b->vocab - j);
    vf_store_part(b->dx, t, j, n, gradient(vf_load_part(b->x, t, j, n), b, 0, capped));
  }
  if (stream) {
    vf_stream_fence(); /* the target's element was streamed: this store comes after */
  }
  vf_store_part(b->dx, t, target, 1, g);
}

static void bwd_any_row(const bwd_row *b, int64_t target, int t, bool stream)
{
  if (b->softcap > 0 && stream) {
    TGI_SWITCH_FLOAT(t, T, bwd_row_as(b, target, T, true, true));
  } else if (b->softcap > 0) {
    TGI_SWITCH_FLOAT(t, T, bwd_row_as(b, target, T, true, false));
  } else if (stream) {
    TGI_SWITCH_FLOAT(t, T, bwd_row_as(b, target, T, false, true));
  } else {
    TGI_SWITCH_FLOAT(t, T, bwd_row_as(b, target, T, false, false));
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
                       .vocab = vocab,
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
  bwd_job job = {.a = a, .rule = TARGET_RULE("cross_entropy_bwd", a)};
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
