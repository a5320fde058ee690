/* RMSNorm on the CPU.
 *
 * Method     Forward, one row at a time: its sum of squares, then the result. Backward, four rows
 *            at a time, so that the weight and the partial sums are loaded once for four: the dot
 *            product of each row, then dx and the partial sums of dweight. The second pass finds
 *            its rows in the cache, and prefetches the next ones.
 * Work       Forward: chunks of rows of at most 512 KiB. Backward: blocks of cpu/column_sums.h.
 * Bound      Memory: forward reads x and writes y, backward reads dy and x and writes dx. Results
 *            too large for the caches are stored past them, which saves reading the lines first,
 *            unless they replace an input.
 */
#include "cpu/column_sums.h"
#include "ops/kernels.h"

#include <stdio.h>

enum { kChunkBytes = 512 << 10, kGroup = 4 };

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

typedef struct fwd_row {
  const void *x, *weight, *next; /* next: the row to prefetch */
  void *y;
  int64_t cols;
  float rstd, offset;
} fwd_row;

/* Four accumulators hide the latency of the fma. */
TGI_INLINE float sum_of_squares(const void *x, int xt, int64_t cols)
{
  vf s[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
  int64_t j = 0;
  for (; j + 4 * TGI_LANES <= cols; j += 4 * TGI_LANES) {
    for (int k = 0; k < 4; k++) {
      const vf v = vf_load(x, xt, j + k * TGI_LANES);
      s[k] = vf_fma(v, v, s[k]);
    }
  }
  for (; j < cols; j += TGI_LANES) {
    const vf v = vf_load_part(x, xt, j, tgi_min_i64(TGI_LANES, cols - j));
    s[0] = vf_fma(v, v, s[0]);
  }
  return vf_sum((s[0] + s[1]) + (s[2] + s[3]));
}

/* y = x * rstd * w, rounded as the policy says. */
TGI_INLINE vf normalise(vf x, vf rstd, vf w, int xt, bool llama)
{
  const vf n = x * rstd;
  return (llama ? vf_round(xt, n) : n) * w;
}

/* All flags are constants in the caller. */
TGI_INLINE void write_row(const fwd_row *f, dtypes t, bool llama, bool stream)
{
  const vf r = vf_set1(f->rstd), o = vf_set1(f->offset);
  int64_t j = 0;
  for (; j + TGI_LANES <= f->cols; j += TGI_LANES) {
    const vf w = vf_load(f->weight, t.weight, j) + o;
    tgi_prefetch(f->next, t.x, j);
    vf_put(f->y, t.y, j, normalise(vf_load(f->x, t.x, j), r, w, t.x, llama), stream);
  }
  if (j < f->cols) {
    const int64_t n = f->cols - j;
    const vf w = vf_load_part(f->weight, t.weight, j, n) + o;
    vf_store_part(f->y, t.y, j, n, normalise(vf_load_part(f->x, t.x, j, n), r, w, t.x, llama));
  }
}

typedef struct fwd_job {
  const tg_rms_norm_fwd_args *a;
  bool stream;
} fwd_job;

TGI_INLINE void fwd_rows_as(const fwd_job *job, int64_t begin, int64_t end, dtypes t, bool llama,
                            bool stream)
{
  const tg_rms_norm_fwd_args *a = job->a;
  float *rstd = a->rstd.data;
  fwd_row f = {.weight = a->weight.data, .cols = a->x.shape[1], .offset = a->weight_offset};
  for (int64_t i = begin; i < end; i++) {
    f.x = tgi_row(&a->x, i);
    f.y = tgi_row(&a->y, i);
    f.next = i + 1 < end ? tgi_row(&a->x, i + 1) : f.x;
    f.rstd = 1.0f / sqrtf(sum_of_squares(f.x, t.x, f.cols) / (float)f.cols + a->eps);
    write_row(&f, t, llama, stream);
    if (rstd) {
      rstd[i] = f.rstd;
    }
  }
}

TGI_INLINE void fwd_rows_policy(const fwd_job *job, int64_t begin, int64_t end, dtypes t)
{
  const bool llama = job->a->policy == TG_RMS_NORM_LLAMA && t.x != TG_F32;
  if (llama && job->stream) {
    fwd_rows_as(job, begin, end, t, true, true);
  } else if (llama) {
    fwd_rows_as(job, begin, end, t, true, false);
  } else if (job->stream) {
    fwd_rows_as(job, begin, end, t, false, true);
  } else {
    fwd_rows_as(job, begin, end, t, false, false);
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
      if (t.y != X) { fwd_rows_policy(job, begin, end, wide); }                  //
      else if (t.weight != X) { fwd_rows_policy(job, begin, end, wide_weight); } //
      else { fwd_rows_policy(job, begin, end, same); });
  vf_stream_fence();
}

/* Long chunks: the first row of one is not prefetched. At least 16 where there are rows for it. */
static int64_t fwd_grain(const tg_rms_norm_fwd_args *a)
{
  const int64_t row_bytes = a->x.shape[1] * (int64_t)tg_dtype_bytes(a->x.dtype);
  const int64_t rows = tgi_min_i64(kChunkBytes / row_bytes, a->x.shape[0] / 16);
  return rows > 1 ? rows : 1;
}

tg_status TGI_KERNEL(rms_norm_fwd)(const tg_context *ctx, const tg_rms_norm_fwd_args *a)
{
  fwd_job job = {a, streams(ctx, &a->y, &a->x)};
  tgi_for(ctx, a->x.shape[0], fwd_grain(a), fwd_rows, &job);
  return TG_OK;
}

void TGI_PLAN(rms_norm_fwd)(const tg_context *ctx, const tg_rms_norm_fwd_args *a, char *text,
                            size_t bytes)
{
  snprintf(text, bytes, "chunks of %lld rows, %s stores", (long long)fwd_grain(a),
           streams(ctx, &a->y, &a->x) ? "streaming" : "cached");
}

/* ---- backward ---- */

typedef struct bwd_job {
  const tg_rms_norm_bwd_args *a;
  float *partial; /* [blocks, cols]; NULL without dweight */
  tgi_row_blocks blocks;
  bool stream;
} bwd_job;

static bwd_job plan_bwd(const tg_context *ctx, const tg_rms_norm_bwd_args *a)
{
  return (bwd_job){.a = a,
                   .partial = tgi_present(&a->dweight) ? a->workspace : NULL,
                   .blocks = tgi_cut_rows(a->x.shape[0]),
                   .stream = tgi_present(&a->dx) && streams(ctx, &a->dx, &a->dy)};
}

/* kGroup rows, or the first of them. */
typedef struct bwd_group {
  const void *dy[kGroup], *x[kGroup], *next_dy[kGroup], *next_x[kGroup], *weight;
  void *dx[kGroup];
  float *partial; /* NULL: no sums */
  int64_t cols;
  vf rstd[kGroup], mean[kGroup], offset; /* mean_j(g * n) */
} bwd_group;

TGI_INLINE void find_means(bwd_group *b, int rows, dtypes t)
{
  vf dot[kGroup][2];
  int64_t j = 0;
  for (int r = 0; r < rows; r++) {
    dot[r][0] = dot[r][1] = vf_zero();
  }
  for (; j + 2 * TGI_LANES <= b->cols; j += 2 * TGI_LANES) {
    for (int k = 0; k < 2; k++) {
      const int64_t at_k = j + k * TGI_LANES;
      const vf w = vf_load(b->weight, t.weight, at_k) + b->offset;
      for (int r = 0; r < rows; r++) {
        dot[r][k] =
            vf_fma(vf_load(b->dy[r], t.y, at_k) * w, vf_load(b->x[r], t.x, at_k), dot[r][k]);
      }
    }
  }
  for (; j < b->cols; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, b->cols - j);
    const vf w = vf_load_part(b->weight, t.weight, j, n) + b->offset;
    for (int r = 0; r < rows; r++) {
      const vf g = vf_load_part(b->dy[r], t.y, j, n) * w;
      dot[r][0] = vf_fma(g, vf_load_part(b->x[r], t.x, j, n), dot[r][0]);
    }
  }
  for (int r = 0; r < rows; r++) {
    b->mean[r] = b->rstd[r] * vf_set1(vf_sum(dot[r][0] + dot[r][1]) / (float)b->cols);
  }
}

/* dx = rstd * (g - n * mean) */
TGI_INLINE vf gradient(const bwd_group *b, int r, vf g, vf n)
{
  return b->rstd[r] * vf_fma(-n, b->mean[r], g);
}

/* dx and the partial sums; all flags are constants in the caller. */
TGI_INLINE void write_group(const bwd_group *b, int rows, dtypes t, bool dx, bool stream)
{
  int64_t j = 0;
  for (; j + TGI_LANES <= b->cols; j += TGI_LANES) {
    const vf w = vf_load(b->weight, t.weight, j) + b->offset;
    vf sum = b->partial ? vf_load_f32(b->partial + j) : vf_zero();
    for (int r = 0; r < rows; r++) {
      const vf dy = vf_load(b->dy[r], t.y, j), n = vf_load(b->x[r], t.x, j) * b->rstd[r];
      tgi_prefetch(b->next_dy[r], t.y, j);
      tgi_prefetch(b->next_x[r], t.x, j);
      sum = vf_fma(dy, n, sum);
      if (dx) {
        vf_put(b->dx[r], t.x, j, gradient(b, r, dy * w, n), stream);
      }
    }
    if (b->partial) {
      vf_store_f32(b->partial + j, sum);
    }
  }
  if (j < b->cols) {
    const int64_t left = b->cols - j;
    const vf w = vf_load_part(b->weight, t.weight, j, left) + b->offset;
    vf sum = b->partial ? vf_load_part_f32(b->partial + j, left) : vf_zero();
    for (int r = 0; r < rows; r++) {
      const vf dy = vf_load_part(b->dy[r], t.y, j, left);
      const vf n = vf_load_part(b->x[r], t.x, j, left) * b->rstd[r];
      sum = vf_fma(dy, n, sum);
      if (dx) {
        vf_store_part(b->dx[r], t.x, j, left, gradient(b, r, dy * w, n));
      }
    }
    if (b->partial) {
      vf_store_part_f32(b->partial + j, left, sum);
    }
  }
}

static float *partial_sums(const bwd_job *job, int64_t block)
{
  return job->partial ? job->partial + block * job->a->x.shape[1] : NULL;
}

/* Rows i .. i + rows - 1 of a block that ends before row `last`. */
TGI_INLINE void bwd_rows(const bwd_job *job, int64_t block, int64_t i, int64_t last, int rows,
                         dtypes t)
{
  const tg_rms_norm_bwd_args *a = job->a;
  const bool dx = tgi_present(&a->dx);
  bwd_group b = {.weight = a->weight.data,
                 .partial = partial_sums(job, block),
                 .cols = a->x.shape[1],
                 .offset = vf_set1(a->weight_offset)};
  for (int r = 0; r < rows; r++) {
    const int64_t next = i + rows + r < last ? i + rows + r : i + r;
    b.dy[r] = tgi_row(&a->dy, i + r);
    b.x[r] = tgi_row(&a->x, i + r);
    b.next_dy[r] = tgi_row(&a->dy, next);
    b.next_x[r] = tgi_row(&a->x, next);
    b.dx[r] = dx ? tgi_row(&a->dx, i + r) : NULL;
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
    memset(partial, 0, (size_t)cols * sizeof *partial);
  }
  for (; i + kGroup <= last; i += kGroup) {
    bwd_rows(job, block, i, last, kGroup, t);
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

size_t TGI_WORKSPACE(rms_norm_bwd)(const tg_context *ctx, const tg_rms_norm_bwd_args *a)
{
  const int64_t floats = tgi_cut_rows(a->x.shape[0]).count * a->x.shape[1];
  (void)ctx;
  return tgi_present(&a->dweight) ? (size_t)floats * sizeof(float) : 0;
}

tg_status TGI_KERNEL(rms_norm_bwd)(const tg_context *ctx, const tg_rms_norm_bwd_args *a)
{
  bwd_job job = plan_bwd(ctx, a);
  const int64_t cols = a->x.shape[1];
  tgi_for(ctx, job.blocks.count, 1, bwd_blocks, &job);
  if (job.partial) {
    tgi_add_column_sums(ctx, (tgi_column_sums){a->dweight.data, a->dweight.dtype, job.partial, cols,
                                               cols, job.blocks.count});
  }
  return TG_OK;
}

void TGI_PLAN(rms_norm_bwd)(const tg_context *ctx, const tg_rms_norm_bwd_args *a, char *text,
                            size_t bytes)
{
  const bwd_job job = plan_bwd(ctx, a);
  snprintf(text, bytes, "%lld blocks of %lld rows, %d rows at once, %s stores",
           (long long)job.blocks.count, (long long)job.blocks.block_rows, kGroup,
           job.stream ? "streaming" : "cached");
}
