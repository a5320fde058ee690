/* LayerNorm on the CPU.
 *
 * Method     Forward, one row at a time: its sum; then the sums of d = x - mean and of d^2, whose
 *            first corrects the rounding of the mean (Chan, Golub & LeVeque 1983); then the
 *            result. Backward, a few rows at a time, so that the weight and the partial sums are
 *            loaded once for all: the two sums of each row, then dx and the partial sums. The
 *            passes after the first find their rows in the cache, and prefetch the next ones.
 * Work       Forward: chunks of rows of at most 512 KiB. Backward: blocks of cpu/column_sums.h.
 * Bound      Memory: forward reads x and writes y, backward reads dy and x and writes dx. Results
 *            too large for the caches are stored past them, unless they replace an input.
 */
#include "cpu/column_sums.h"
#include "ops/kernels.h"

#include <stdio.h>

enum {
  kChunkBytes = 512 << 10,
  kGroup = 4,     /* rows at once in the backward ... */
  kNarrow = 2048, /* ... of more columns than this; narrower ones, whose weight and sums stay in the
                   * first-level cache, go in twos */
  kAhead = 4,     /* the pass before the last prefetches 1 / kAhead of the next row */
};

typedef struct dtypes {
  int x, weight, y; /* y: of dy in the backward */
} dtypes;

static bool streams(const tg_context *ctx, const tg_tensor *t, const tg_tensor *input)
{
  return t->data != input->data &&
         tgi_streamable(t->data, tgi_stride(t, 0), tg_dtype_bytes(t->dtype)) &&
         tgi_exceeds_cache(ctx, tgi_span_bytes(t));
}

/* ---- forward ---- */

typedef struct moments {
  float mean, correction, rstd; /* of a row, whose mean is mean + correction */
} moments;

TGI_INLINE float sum_of_row(const void *x, int xt, int64_t cols)
{
  vf s[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
  int64_t j = 0;
  for (; j + 4 * TGI_LANES <= cols; j += 4 * TGI_LANES) {
    for (int k = 0; k < 4; k++) {
      s[k] = s[k] + vf_load(x, xt, j + k * TGI_LANES);
    }
  }
  for (; j < cols; j += TGI_LANES) {
    s[0] = s[0] + vf_load_part(x, xt, j, tgi_min_i64(TGI_LANES, cols - j));
  }
  return vf_sum((s[0] + s[1]) + (s[2] + s[3]));
}

TGI_INLINE moments moments_of_row(const void *x, int xt, int64_t cols, float eps, const void *next)
{
  const float n = (float)cols, mean = sum_of_row(x, xt, cols) / n;
  const vf m = vf_set1(mean);
  vf sum[2] = {vf_zero(), vf_zero()}, square[2] = {vf_zero(), vf_zero()};
  int64_t j = 0;
  for (; j + 2 * TGI_LANES <= cols; j += 2 * TGI_LANES) {
    for (int k = 0; k < 2; k++) {
      const vf d = vf_load(x, xt, j + k * TGI_LANES) - m;
      sum[k] = sum[k] + d;
      square[k] = vf_fma(d, d, square[k]);
    }
    if (j % (kAhead * TGI_LANES) == 0) {
      tgi_prefetch(next, xt, j / kAhead);
    }
  }
  for (; j < cols; j += TGI_LANES) {
    const int64_t left = tgi_min_i64(TGI_LANES, cols - j);
    const vf d = vf_first(vf_load_part(x, xt, j, left) - m, left);
    sum[0] = sum[0] + d;
    square[0] = vf_fma(d, d, square[0]);
  }
  const float shift = vf_sum(sum[0] + sum[1]) / n;
  const float spread = vf_sum(square[0] + square[1]) / n - shift * shift;
  const float variance = spread < 0 ? 0 : spread;
  /* A mean near zero needs no correction, and the rounding of d could only bias it. */
  const float correction = mean * mean > variance ? shift : 0;
  return (moments){mean, correction, 1.0f / sqrtf(variance + eps)};
}

typedef struct fwd_row {
  const void *x, *weight, *bias, *next; /* bias may be NULL; next: the row to prefetch */
  void *y;
  int64_t cols;
  moments m;
} fwd_row;

TGI_INLINE vf result(vf x, const moments *m, vf weight, vf bias)
{
  const vf d = (x - vf_set1(m->mean)) - vf_set1(m->correction);
  return vf_fma(d * vf_set1(m->rstd), weight, bias);
}

TGI_INLINE void write_row(const fwd_row *r, dtypes t, bool stream)
{
  int64_t j = 0;
  for (; j + TGI_LANES <= r->cols; j += TGI_LANES) {
    const vf b = r->bias ? vf_load(r->bias, t.weight, j) : vf_zero();
    if (j >= r->cols / kAhead) {
      tgi_prefetch(r->next, t.x, j);
    }
    vf_put(r->y, t.y, j, result(vf_load(r->x, t.x, j), &r->m, vf_load(r->weight, t.weight, j), b),
           stream);
  }
  if (j < r->cols) {
    const int64_t n = r->cols - j;
    const vf b = r->bias ? vf_load_part(r->bias, t.weight, j, n) : vf_zero();
    const vf w = vf_load_part(r->weight, t.weight, j, n);
    vf_store_part(r->y, t.y, j, n, result(vf_load_part(r->x, t.x, j, n), &r->m, w, b));
  }
}

typedef struct fwd_job {
  const tg_layer_norm_fwd_args *a;
  bool stream;
} fwd_job;

TGI_INLINE void fwd_rows_as(const fwd_job *job, int64_t begin, int64_t end, dtypes t)
{
  const tg_layer_norm_fwd_args *a = job->a;
  float *mean = a->mean.data, *rstd = a->rstd.data;
  fwd_row r = {.weight = a->weight.data, .bias = a->bias.data, .cols = a->x.shape[1]};
  for (int64_t i = begin; i < end; i++) {
    r.x = tgi_row(&a->x, i);
    r.y = tgi_row(&a->y, i);
    r.next = i + 1 < end ? tgi_row(&a->x, i + 1) : r.x;
    r.m = moments_of_row(r.x, t.x, r.cols, a->eps, r.next);
    if (job->stream) {
      write_row(&r, t, true);
    } else {
      write_row(&r, t, false);
    }
    if (mean) {
      mean[i] = r.m.mean + r.m.correction;
    }
    if (rstd) {
      rstd[i] = r.m.rstd;
    }
  }
}

/* The contract allows these dtypes of (x, weight, y): (t, t, t), (t, f32, t), (t, f32, f32). */
static void fwd_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const fwd_job *job = arg;
  const dtypes t = {job->a->x.dtype, job->a->weight.dtype, job->a->y.dtype};
  (void)thread;
  TGI_SWITCH_FLOAT(
      t.x, X, const dtypes same = {X, X, X}, wide_weight = {X, TG_F32, X},
      wide = {X, TG_F32, TG_F32};
      if (t.y != X) { fwd_rows_as(job, begin, end, wide); }                  //
      else if (t.weight != X) { fwd_rows_as(job, begin, end, wide_weight); } //
      else { fwd_rows_as(job, begin, end, same); });
  vf_stream_fence();
}

/* Long chunks: the first row of one is not prefetched. At least 16 where there are rows for it. */
static int64_t fwd_grain(const tg_layer_norm_fwd_args *a)
{
  const int64_t row_bytes = a->x.shape[1] * (int64_t)tg_dtype_bytes(a->x.dtype);
  const int64_t rows = tgi_min_i64(kChunkBytes / row_bytes, a->x.shape[0] / 16);
  return rows > 1 ? rows : 1;
}

tg_status TGI_KERNEL(layer_norm_fwd)(const tg_context *ctx, const tg_layer_norm_fwd_args *a)
{
  fwd_job job = {a, streams(ctx, &a->y, &a->x)};
  tgi_for(ctx, a->x.shape[0], fwd_grain(a), fwd_rows, &job);
  return TG_OK;
}

void TGI_PLAN(layer_norm_fwd)(const tg_context *ctx, const tg_layer_norm_fwd_args *a, char *text,
                              size_t bytes)
{
  snprintf(text, bytes, "chunks of %lld rows, %s stores", (long long)fwd_grain(a),
           streams(ctx, &a->y, &a->x) ? "streaming" : "cached");
}

/* ---- backward ---- */

typedef struct bwd_job {
  const tg_layer_norm_bwd_args *a;
  float *partial; /* [blocks, 2, cols]: of dweight, of dbias; NULL without both */
  tgi_row_blocks blocks;
  bool stream;
} bwd_job;

static bwd_job plan_bwd(const tg_context *ctx, const tg_layer_norm_bwd_args *a)
{
  const bool sums = tgi_present(&a->dweight) || tgi_present(&a->dbias);
  return (bwd_job){.a = a,
                   .partial = sums ? a->workspace : NULL,
                   .blocks = tgi_cut_rows(a->x.shape[0]),
                   .stream = tgi_present(&a->dx) && a->dx.data != a->dresidual.data &&
                             streams(ctx, &a->dx, &a->dy)};
}

/* kGroup rows, or the first of them. */
typedef struct bwd_group {
  const void *dy[kGroup], *x[kGroup], *next_dy[kGroup], *next_x[kGroup], *weight;
  const void *dresidual[kGroup]; /* NULL: none */
  void *dx[kGroup];
  float *partial; /* NULL: no sums */
  int64_t cols;
  vf mean[kGroup], rstd[kGroup], mean_g[kGroup], mean_gn[kGroup];
} bwd_group;

/* mean_j(g) and mean_j(g * n) of each row */
TGI_INLINE void find_means(bwd_group *b, int rows, dtypes t)
{
  vf sum[kGroup][2], dot[kGroup][2];
  int64_t j = 0;
  for (int r = 0; r < rows; r++) {
    sum[r][0] = sum[r][1] = dot[r][0] = dot[r][1] = vf_zero();
  }
  for (; j + 2 * TGI_LANES <= b->cols; j += 2 * TGI_LANES) {
    for (int k = 0; k < 2; k++) {
      const int64_t at_k = j + k * TGI_LANES;
      const vf w = vf_load(b->weight, t.weight, at_k);
      for (int r = 0; r < rows; r++) {
        const vf g = vf_load(b->dy[r], t.y, at_k) * w;
        sum[r][k] = sum[r][k] + g;
        dot[r][k] = vf_fma(g, vf_load(b->x[r], t.x, at_k) - b->mean[r], dot[r][k]);
      }
    }
    if (j % (kAhead * TGI_LANES) == 0) {
      for (int r = 0; r < rows; r++) {
        tgi_prefetch(b->next_dy[r], t.y, j / kAhead);
        tgi_prefetch(b->next_x[r], t.x, j / kAhead);
      }
    }
  }
  for (; j < b->cols; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, b->cols - j);
    const vf w = vf_load_part(b->weight, t.weight, j, n);
    for (int r = 0; r < rows; r++) {
      const vf g = vf_load_part(b->dy[r], t.y, j, n) * w;
      sum[r][0] = sum[r][0] + g;
      dot[r][0] = vf_fma(g, vf_first(vf_load_part(b->x[r], t.x, j, n) - b->mean[r], n), dot[r][0]);
    }
  }
  for (int r = 0; r < rows; r++) {
    b->mean_g[r] = vf_set1(vf_sum(sum[r][0] + sum[r][1]) / (float)b->cols);
    b->mean_gn[r] = b->rstd[r] * vf_set1(vf_sum(dot[r][0] + dot[r][1]) / (float)b->cols);
  }
}

TGI_INLINE vf gradient(const bwd_group *b, int r, vf g, vf n)
{
  return b->rstd[r] * (vf_fma(-n, b->mean_gn[r], g) - b->mean_g[r]);
}

/* dx and the partial sums; all flags are constants in the caller. */
TGI_INLINE void write_group(const bwd_group *b, int rows, dtypes t, bool dx, bool stream)
{
  float *dweight = b->partial, *dbias = b->partial ? b->partial + b->cols : NULL;
  int64_t j = 0;
  for (; j + TGI_LANES <= b->cols; j += TGI_LANES) {
    const vf w = vf_load(b->weight, t.weight, j);
    vf sw = dweight ? vf_load_f32(dweight + j) : vf_zero();
    vf sb = dbias ? vf_load_f32(dbias + j) : vf_zero();
    for (int r = 0; r < rows; r++) {
      const vf dy = vf_load(b->dy[r], t.y, j);
      const vf n = (vf_load(b->x[r], t.x, j) - b->mean[r]) * b->rstd[r];
      if (j >= b->cols / kAhead) {
        tgi_prefetch(b->next_dy[r], t.y, j);
        tgi_prefetch(b->next_x[r], t.x, j);
      }
      sw = vf_fma(dy, n, sw);
      sb = sb + dy;
      if (dx) {
        const vf past = b->dresidual[r] ? vf_load(b->dresidual[r], t.x, j) : vf_zero();
        vf_put(b->dx[r], t.x, j, past + gradient(b, r, dy * w, n), stream);
      }
    }
    if (dweight) {
      vf_store_f32(dweight + j, sw);
      vf_store_f32(dbias + j, sb);
    }
  }
  if (j < b->cols) {
    const int64_t left = b->cols - j;
    const vf w = vf_load_part(b->weight, t.weight, j, left);
    vf sw = dweight ? vf_load_part_f32(dweight + j, left) : vf_zero();
    vf sb = dbias ? vf_load_part_f32(dbias + j, left) : vf_zero();
    for (int r = 0; r < rows; r++) {
      const vf dy = vf_load_part(b->dy[r], t.y, j, left);
      const vf n = (vf_load_part(b->x[r], t.x, j, left) - b->mean[r]) * b->rstd[r];
      sw = vf_fma(dy, n, sw);
      sb = sb + dy;
      if (dx) {
        const vf past = b->dresidual[r] ? vf_load_part(b->dresidual[r], t.x, j, left) : vf_zero();
        vf_store_part(b->dx[r], t.x, j, left, past + gradient(b, r, dy * w, n));
      }
    }
    if (dweight) {
      vf_store_part_f32(dweight + j, left, sw);
      vf_store_part_f32(dbias + j, left, sb);
    }
  }
}

static float *partial_sums(const bwd_job *job, int64_t block)
{
  return job->partial ? job->partial + block * 2 * job->a->x.shape[1] : NULL;
}

/* Rows i .. i + rows - 1 of a block that ends before row `last`. */
TGI_INLINE void bwd_rows(const bwd_job *job, int64_t block, int64_t i, int64_t last, int rows,
                         dtypes t)
{
  const tg_layer_norm_bwd_args *a = job->a;
  const bool dx = tgi_present(&a->dx);
  bwd_group b = {
      .weight = a->weight.data, .partial = partial_sums(job, block), .cols = a->x.shape[1]};
  for (int r = 0; r < rows; r++) {
    const int64_t next = i + rows + r < last ? i + rows + r : i + r;
    b.dy[r] = tgi_row(&a->dy, i + r);
    b.x[r] = tgi_row(&a->x, i + r);
    b.next_dy[r] = tgi_row(&a->dy, next);
    b.next_x[r] = tgi_row(&a->x, next);
    b.dresidual[r] = tgi_present(&a->dresidual) ? tgi_row(&a->dresidual, i + r) : NULL;
    b.dx[r] = dx ? tgi_row(&a->dx, i + r) : NULL;
    b.mean[r] = vf_set1(((const float *)a->mean.data)[i + r]);
    b.rstd[r] = vf_set1(((const float *)a->rstd.data)[i + r]);
  }
  if (!dx) {
    write_group(&b, rows, t, false, false);
    return;
  }
  find_means(&b, rows, t);
  if (job->stream) {
    write_group(&b, rows, t, true, true);
  } else {
    write_group(&b, rows, t, true, false);
  }
}

TGI_INLINE void bwd_block_as(const bwd_job *job, int64_t block, dtypes t)
{
  const int64_t first = block * job->blocks.block_rows, cols = job->a->x.shape[1];
  const int64_t last = tgi_min_i64(job->blocks.rows, first + job->blocks.block_rows);
  float *partial = partial_sums(job, block);
  int64_t i = first;
  if (partial) {
    memset(partial, 0, 2 * (size_t)cols * sizeof *partial);
  }
  for (; cols > kNarrow && i + kGroup <= last; i += kGroup) {
    bwd_rows(job, block, i, last, kGroup, t);
  }
  for (; i + 2 <= last; i += 2) {
    bwd_rows(job, block, i, last, 2, t);
  }
  for (; i < last; i++) {
    bwd_rows(job, block, i, last, 1, t);
  }
}

/* dtypes of (x, weight, dy): (t, t, t), (t, f32, t), (t, f32, f32). */
static void bwd_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
  const bwd_job *job = arg;
  const dtypes t = {job->a->x.dtype, job->a->weight.dtype, job->a->dy.dtype};
  (void)thread;
  for (int64_t block = begin; block < end; block++) {
    TGI_SWITCH_FLOAT(
        t.x, X, const dtypes same = {X, X, X}, wide_weight = {X, TG_F32, X},
        wide = {X, TG_F32, TG_F32};
        if (t.y != X) { bwd_block_as(job, block, wide); }                  //
        else if (t.weight != X) { bwd_block_as(job, block, wide_weight); } //
        else { bwd_block_as(job, block, same); });
  }
  vf_stream_fence();
}

size_t TGI_WORKSPACE(layer_norm_bwd)(const tg_context *ctx, const tg_layer_norm_bwd_args *a)
{
  const bool sums = tgi_present(&a->dweight) || tgi_present(&a->dbias);
  (void)ctx;
  return sums ? (size_t)(tgi_cut_rows(a->x.shape[0]).count * 2 * a->x.shape[1]) * sizeof(float) : 0;
}

tg_status TGI_KERNEL(layer_norm_bwd)(const tg_context *ctx, const tg_layer_norm_bwd_args *a)
{
  bwd_job job = plan_bwd(ctx, a);
  const int64_t cols = a->x.shape[1];
  tgi_for(ctx, job.blocks.count, 1, bwd_blocks, &job);
  if (tgi_present(&a->dweight)) {
    tgi_add_column_sums(ctx, (tgi_column_sums){a->dweight.data, a->dweight.dtype, job.partial, cols,
                                               2 * cols, job.blocks.count});
  }
  if (tgi_present(&a->dbias)) {
    tgi_add_column_sums(ctx, (tgi_column_sums){a->dbias.data, a->dbias.dtype, job.partial + cols,
                                               cols, 2 * cols, job.blocks.count});
  }
  return TG_OK;
}

void TGI_PLAN(layer_norm_bwd)(const tg_context *ctx, const tg_layer_norm_bwd_args *a, char *text,
                              size_t bytes)
{
  const bwd_job job = plan_bwd(ctx, a);
  snprintf(text, bytes, "%lld blocks of %lld rows, %d rows at once, %s stores",
           (long long)job.blocks.count, (long long)job.blocks.block_rows,
           a->x.shape[1] > kNarrow ? kGroup : 2, job.stream ? "streaming" : "cached");
}
