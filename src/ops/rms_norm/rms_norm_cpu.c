/* RMSNorm on the CPU.
 *
 * Method     One row at a time: a sum of squares, then one pass that normalises; the second pass
 *            finds the row in the cache. The backward does the same with dy and x, and adds dy * n
 *            into a row of partial sums.
 * Work       Forward: chunks of rows of about 128 KiB. Backward: at most 64 blocks of rows, cut by
 *            the number of rows alone, each with its own partial sums of dweight; a second loop
 *            over the columns adds the blocks in order. So the bits do not depend on the threads.
 * Bound      Memory: forward reads x and writes y, backward reads dy and x and writes dx. Results
 *            too large for the caches are stored past them, which saves reading the lines first.
 */
#include "cpu/simd.h"
#include "ops/kernels.h"

#include <stdio.h>

enum { kChunkBytes = 128 << 10, kMaxBlocks = 64, kMinBlockRows = 16 };

/* Four accumulators hide the latency of the fma. */
TGI_INLINE float sum_of_squares_as(const void *x, int xt, int64_t cols)
{
  vf s[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
  int64_t j = 0;
  for (; j + 4 * TGI_LANES <= cols; j += 4 * TGI_LANES) {
    for (int k = 0; k < 4; k++) {
      const vf v = vf_load(x, xt, j + k * TGI_LANES);
      s[k] = vf_fma(v, v, s[k]);
    }
  }
  for (; j + TGI_LANES <= cols; j += TGI_LANES) {
    const vf v = vf_load(x, xt, j);
    s[0] = vf_fma(v, v, s[0]);
  }
  if (j < cols) {
    const vf v = vf_load_part(x, xt, j, cols - j);
    s[1] = vf_fma(v, v, s[1]);
  }
  return vf_sum((s[0] + s[1]) + (s[2] + s[3]));
}

static float sum_of_squares(const void *x, int xt, int64_t cols)
{
  TGI_SWITCH_FLOAT(xt, T, return sum_of_squares_as(x, T, cols));
  return 0;
}

typedef struct row_dtypes {
  int x, weight, y;
} row_dtypes;

/* y = x * rstd * w, rounded as the policy says. All flags are constants in the caller. */
TGI_INLINE vf normalise(vf x, vf rstd, vf w, int xt, bool llama)
{
  const vf n = x * rstd;
  return (llama ? vf_round(xt, n) : n) * w;
}

TGI_INLINE void write_row_as(const void *x, const void *weight, void *y, int64_t cols, float rstd,
                             float offset, row_dtypes t, bool llama, bool stream)
{
  const vf r = vf_set1(rstd), o = vf_set1(offset);
  int64_t j = 0;
  for (; j + TGI_LANES <= cols; j += TGI_LANES) {
    const vf w = vf_load(weight, t.weight, j) + o;
    vf_put(y, t.y, j, normalise(vf_load(x, t.x, j), r, w, t.x, llama), stream);
  }
  if (j < cols) {
    const int64_t n = cols - j;
    const vf w = vf_load_part(weight, t.weight, j, n) + o;
    vf_store_part(y, t.y, j, n, normalise(vf_load_part(x, t.x, j, n), r, w, t.x, llama));
  }
}

/* The contract allows these dtypes of (x, weight, y): (t, t, t), (t, f32, t), (t, f32, f32). */
TGI_INLINE void write_row(const void *x, const void *weight, void *y, int64_t cols, float rstd,
                          float offset, row_dtypes t, bool llama, bool stream)
{
  TGI_SWITCH_FLOAT(
      t.x, X, const row_dtypes same = {X, X, X}, wide_weight = {X, TG_F32, X},
      wide = {X, TG_F32, TG_F32};
      if (t.y != X) { write_row_as(x, weight, y, cols, rstd, offset, wide, llama, stream); } //
      else if (t.weight != X) {
        write_row_as(x, weight, y, cols, rstd, offset, wide_weight, llama, stream);
      } else { write_row_as(x, weight, y, cols, rstd, offset, same, llama, stream); });
}

static bool streams(const tg_context *ctx, const tg_tensor *t)
{
  return tgi_streamable(t->data, tgi_stride(t, 0), tg_dtype_bytes(t->dtype)) &&
         tgi_exceeds_cache(ctx, tgi_span_bytes(t));
}

typedef struct fwd_job {
  const tg_rms_norm_fwd_args *a;
  bool stream;
} fwd_job;

static void fwd_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const fwd_job *job = arg;
  const tg_rms_norm_fwd_args *a = job->a;
  const int64_t cols = a->x.shape[1];
  const row_dtypes t = {a->x.dtype, a->weight.dtype, a->y.dtype};
  const bool llama = a->policy == TG_RMS_NORM_LLAMA && t.x != TG_F32;
  const void *w = a->weight.data;
  float *rstd = a->rstd.data;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    const void *x = tgi_row(&a->x, i);
    void *y = tgi_row(&a->y, i);
    const float r = 1.0f / sqrtf(sum_of_squares(x, t.x, cols) / (float)cols + a->eps);
    if (llama && job->stream) {
      write_row(x, w, y, cols, r, a->weight_offset, t, true, true);
    } else if (llama) {
      write_row(x, w, y, cols, r, a->weight_offset, t, true, false);
    } else if (job->stream) {
      write_row(x, w, y, cols, r, a->weight_offset, t, false, true);
    } else {
      write_row(x, w, y, cols, r, a->weight_offset, t, false, false);
    }
    if (rstd) {
      rstd[i] = r;
    }
  }
  vf_stream_fence();
}

static int64_t fwd_grain(const tg_rms_norm_fwd_args *a)
{
  const int64_t row_bytes = a->x.shape[1] * (int64_t)tg_dtype_bytes(a->x.dtype);
  return row_bytes < kChunkBytes ? kChunkBytes / row_bytes : 1;
}

tg_status TGI_KERNEL(rms_norm_fwd)(const tg_context *ctx, const tg_rms_norm_fwd_args *a)
{
  fwd_job job = {a, streams(ctx, &a->y)};
  tgi_for(ctx, a->x.shape[0], fwd_grain(a), fwd_rows, &job);
  return TG_OK;
}

void TGI_PLAN(rms_norm_fwd)(const tg_context *ctx, const tg_rms_norm_fwd_args *a, char *text,
                            size_t bytes)
{
  snprintf(text, bytes, "chunks of %lld rows, %s stores", (long long)fwd_grain(a),
           streams(ctx, &a->y) ? "streaming" : "cached");
}

/* ---- backward ---- */

typedef struct bwd_job {
  const tg_rms_norm_bwd_args *a;
  float *partial; /* [blocks, cols]; NULL without dweight */
  int64_t block_rows, blocks;
  bool stream;
} bwd_job;

static bwd_job plan_bwd(const tg_context *ctx, const tg_rms_norm_bwd_args *a)
{
  const int64_t rows = a->x.shape[0];
  int64_t block_rows = (rows + kMaxBlocks - 1) / kMaxBlocks;
  block_rows = block_rows > kMinBlockRows ? block_rows : kMinBlockRows;
  return (bwd_job){.a = a,
                   .partial = tgi_present(&a->dweight) ? a->workspace : NULL,
                   .block_rows = block_rows,
                   .blocks = (rows + block_rows - 1) / block_rows,
                   .stream = tgi_present(&a->dx) && streams(ctx, &a->dx)};
}

/* sum_j g[j] * n[j] */
TGI_INLINE float dot_row(const void *dy, const void *x, const void *weight, int64_t cols,
                         float rstd, float offset, int xt, int dyt, int wt)
{
  const vf o = vf_set1(offset);
  vf s0 = vf_zero(), s1 = vf_zero();
  int64_t j = 0;
  for (; j + 2 * TGI_LANES <= cols; j += 2 * TGI_LANES) {
    const int64_t k = j + TGI_LANES;
    s0 = vf_fma(vf_load(dy, dyt, j) * (vf_load(weight, wt, j) + o), vf_load(x, xt, j), s0);
    s1 = vf_fma(vf_load(dy, dyt, k) * (vf_load(weight, wt, k) + o), vf_load(x, xt, k), s1);
  }
  for (; j < cols; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, cols - j);
    const vf g = vf_load_part(dy, dyt, j, n) * (vf_load_part(weight, wt, j, n) + o);
    s0 = vf_fma(g, vf_load_part(x, xt, j, n), s0);
  }
  return vf_sum(s0 + s1) * rstd;
}

typedef struct bwd_row {
  const void *dy, *x, *weight;
  void *dx;       /* NULL: not asked for */
  float *partial; /* NULL: not asked for */
  int64_t cols;
  float rstd, mean, offset;
} bwd_row;

/* dx = rstd * (g - n * mean); partial += dy * n */
TGI_INLINE void bwd_row_as(const bwd_row *b, int xt, int dyt, int wt, bool stream)
{
  const vf r = vf_set1(b->rstd), m = vf_set1(b->mean), o = vf_set1(b->offset);
  int64_t j = 0;
  for (; j + TGI_LANES <= b->cols; j += TGI_LANES) {
    const vf dy = vf_load(b->dy, dyt, j), n = vf_load(b->x, xt, j) * r;
    if (b->partial) {
      vf_store_f32(b->partial + j, vf_fma(dy, n, vf_load_f32(b->partial + j)));
    }
    if (b->dx) {
      const vf g = dy * (vf_load(b->weight, wt, j) + o);
      vf_put(b->dx, xt, j, r * (g - n * m), stream);
    }
  }
  if (j < b->cols) {
    const int64_t k = b->cols - j;
    const vf dy = vf_load_part(b->dy, dyt, j, k), n = vf_load_part(b->x, xt, j, k) * r;
    if (b->partial) {
      const vf sum = vf_fma(dy, n, vf_load_part_f32(b->partial + j, k));
      vf_store_part_f32(b->partial + j, k, sum);
    }
    if (b->dx) {
      const vf g = dy * (vf_load_part(b->weight, wt, j, k) + o);
      vf_store_part(b->dx, xt, j, k, r * (g - n * m));
    }
  }
}

TGI_INLINE void bwd_one_row(bwd_row *b, int xt, int dyt, int wt, bool stream)
{
  const float dot =
      b->dx ? dot_row(b->dy, b->x, b->weight, b->cols, b->rstd, b->offset, xt, dyt, wt) : 0.0f;
  b->mean = dot / (float)b->cols;
  if (stream) {
    bwd_row_as(b, xt, dyt, wt, true);
  } else {
    bwd_row_as(b, xt, dyt, wt, false);
  }
}

/* dtypes of (x, dy, weight): (t, t, t), (t, t, f32), (t, f32, f32). */
static void bwd_any_row(bwd_row *b, row_dtypes t, bool stream)
{
  TGI_SWITCH_FLOAT(
      t.x, X,
      if (t.y != X) { bwd_one_row(b, X, TG_F32, TG_F32, stream); }      //
      else if (t.weight != X) { bwd_one_row(b, X, X, TG_F32, stream); } //
      else { bwd_one_row(b, X, X, X, stream); });
}

static void bwd_block(void *arg, int64_t begin, int64_t end, int thread)
{
  const bwd_job *job = arg;
  const tg_rms_norm_bwd_args *a = job->a;
  const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
  const row_dtypes t = {a->x.dtype, a->weight.dtype, a->dy.dtype};
  (void)thread;
  for (int64_t block = begin; block < end; block++) {
    const int64_t first = block * job->block_rows;
    const int64_t last = tgi_min_i64(rows, first + job->block_rows);
    float *partial = job->partial ? job->partial + block * cols : NULL;
    if (partial) {
      memset(partial, 0, (size_t)cols * sizeof *partial);
    }
    for (int64_t i = first; i < last; i++) {
      bwd_row b = {.dy = tgi_row(&a->dy, i),
                   .x = tgi_row(&a->x, i),
                   .weight = a->weight.data,
                   .dx = tgi_present(&a->dx) ? tgi_row(&a->dx, i) : NULL,
                   .partial = partial,
                   .cols = cols,
                   .rstd = ((const float *)a->rstd.data)[i],
                   .offset = a->weight_offset};
      bwd_any_row(&b, t, job->stream);
    }
  }
  vf_stream_fence();
}

/* dweight[j] += the blocks' partial sums, in order. */
static void add_partials(void *arg, int64_t begin, int64_t end, int thread)
{
  const bwd_job *job = arg;
  const tg_tensor *dweight = &job->a->dweight;
  const int64_t cols = job->a->x.shape[1];
  (void)thread;
  for (int64_t j = begin; j < end; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, end - j);
    vf sum = vf_zero();
    for (int64_t block = 0; block < job->blocks; block++) {
      sum = sum + vf_load_part_f32(job->partial + block * cols + j, n);
    }
    TGI_SWITCH_FLOAT(
        dweight->dtype, T,
        vf_store_part(dweight->data, T, j, n, vf_load_part(dweight->data, T, j, n) + sum));
  }
}

size_t TGI_WORKSPACE(rms_norm_bwd)(const tg_context *ctx, const tg_rms_norm_bwd_args *a)
{
  const size_t partial_bytes = (size_t)(plan_bwd(ctx, a).blocks * a->x.shape[1]) * sizeof(float);
  return tgi_present(&a->dweight) ? partial_bytes : 0;
}

tg_status TGI_KERNEL(rms_norm_bwd)(const tg_context *ctx, const tg_rms_norm_bwd_args *a)
{
  bwd_job job = plan_bwd(ctx, a);
  tgi_for(ctx, job.blocks, 1, bwd_block, &job);
  if (job.partial) {
    tgi_for(ctx, a->x.shape[1], 1024, add_partials, &job);
  }
  return TG_OK;
}

void TGI_PLAN(rms_norm_bwd)(const tg_context *ctx, const tg_rms_norm_bwd_args *a, char *text,
                            size_t bytes)
{
  const bwd_job job = plan_bwd(ctx, a);
  snprintf(text, bytes, "%lld blocks of %lld rows, %s stores", (long long)job.blocks,
           (long long)job.block_rows, job.stream ? "streaming" : "cached");
}
