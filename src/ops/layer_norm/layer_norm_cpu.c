/* LayerNorm on the CPU.
 *
 * Method     Forward: three passes per row. The first sums x. The second sums d = x - mean and d^2;
 *            the sum of d corrects the rounding of the mean (Chan, Golub & LeVeque 1983). The third
 *            computes y. Backward: two passes over a group of rows that fits the cache. The first
 *            computes the two sums of each row. The second computes dx and the partial sums of
 *            dweight and dbias, tile by tile: the weight and the sums of a few columns stay in
 *            registers over all rows of the group. Later passes read from the cache and prefetch
 *            the next rows.
 * Work       Forward: threads process chunks of rows of at most 512 KiB. Backward: the row blocks
 *            of cpu/column_sums.h.
 * Bound      Memory bandwidth: forward reads x and writes y, backward reads dy and x and writes dx.
 *            Outputs larger than the caches use streaming stores, unless they alias an input.
 */
#include "cpu/column_sums.h"
#include "cpu/norm_dtypes.h"
#include "cpu/row_pass.h"
#include "cpu/unroll.h"
#include "ops/kernels.h"

#include <stdio.h>

enum {
  kTile = TGI_LANES / 4, /* vectors; limited by the registers of each instruction set */
  kAhead = 4,            /* the pass before the last prefetches 1 / kAhead of the next row; */
  kAheadBwd = 2,         /* in the backward 1 / kAheadBwd */
  kGroupBytes = 32 << 10,
};

/* ---- forward ---- */

typedef struct moments {
  float mean, correction, rstd; /* of a row; its mean is mean + correction */
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
  /* A mean near zero needs no correction: the rounding errors of d would bias it. */
  const float correction = mean * mean > variance ? shift : 0;
  return (moments){mean, correction, 1.0f / sqrtf(variance + eps)};
}

typedef struct fwd_row {
  const void *x, *weight, *bias, *next; /* bias may be NULL; next: the row to prefetch */
  void *y;
  int64_t cols;
  moments m;
  bool stream;
} fwd_row;

TGI_INLINE vf result(vf x, const moments *m, vf weight, vf bias)
{
  const vf d = (x - vf_set1(m->mean)) - vf_set1(m->correction);
  return vf_fma(d * vf_set1(m->rstd), weight, bias);
}

/* Computes and stores n <= TGI_LANES results. */
TGI_INLINE void write_results(const fwd_row *r, norm_dtypes t, int64_t j, int64_t n)
{
  const vf b = r->bias ? norm_load(r->bias, t.weight, t.x, j, n) : vf_zero();
  const vf w = norm_load(r->weight, t.weight, t.x, j, n);
  norm_put(r->y, t.y, t.x, j, n, result(vf_load_up_to(r->x, t.x, j, n), &r->m, w, b), r->stream);
}

TGI_INLINE void write_row(const fwd_row *r, norm_dtypes t)
{
  int64_t j = 0;
  for (; j + TGI_LANES <= r->cols; j += TGI_LANES) {
    if (j >= r->cols / kAhead) {
      tgi_prefetch(r->next, t.x, j);
    }
    write_results(r, t, j, TGI_LANES);
  }
  if (j < r->cols) {
    write_results(r, t, j, r->cols - j);
  }
}

typedef struct fwd_job {
  const tg_layer_norm_fwd_args *a;
  bool stream;
} fwd_job;

TGI_INLINE void fwd_rows_as(const fwd_job *job, int64_t begin, int64_t end, norm_dtypes t)
{
  const tg_layer_norm_fwd_args *a = job->a;
  float *mean = a->mean.data, *rstd = a->rstd.data;
  fwd_row r = {
      .weight = a->weight.data, .bias = a->bias.data, .cols = a->x.shape[1], .stream = job->stream};
  for (int64_t i = begin; i < end; i++) {
    r.x = tgi_row(&a->x, i);
    r.y = tgi_row(&a->y, i);
    r.next = i + 1 < end ? tgi_row(&a->x, i + 1) : r.x;
    r.m = moments_of_row(r.x, t.x, r.cols, a->eps, r.next);
    write_row(&r, t);
    if (mean) {
      mean[i] = r.m.mean + r.m.correction;
    }
    if (rstd) {
      rstd[i] = r.m.rstd;
    }
  }
}

static void fwd_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const fwd_job *job = arg;
  const norm_dtypes t = {job->a->x.dtype, job->a->weight.dtype, job->a->y.dtype};
  (void)thread;
  SWITCH_NORM_DTYPES(t, true, T, fwd_rows_as(job, begin, end, T));
  vf_stream_fence();
}

tg_status TGI_KERNEL(layer_norm_fwd)(const tg_context *ctx, const tg_layer_norm_fwd_args *a)
{
  fwd_job job = {a, tgi_streams(ctx, &a->y, &a->x)};
  tgi_for(ctx, a->x.shape[0], tgi_chunk_rows(&a->x), fwd_rows, &job);
  return TG_OK;
}

void TGI_PLAN(layer_norm_fwd)(const tg_context *ctx, const tg_layer_norm_fwd_args *a, char *text,
                              size_t bytes)
{
  snprintf(text, bytes, "chunks of %lld rows, %s stores", (long long)tgi_chunk_rows(&a->x),
           tgi_streams(ctx, &a->y, &a->x) ? "streaming" : "cached");
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
                             tgi_streams(ctx, &a->dx, &a->dy)};
}

typedef struct bwd_group {
  tgi_rows dy, x, dresidual, dx; /* dresidual, dx: absent if `first` is NULL */
  const void *weight;
  float *dweight, *dbias; /* partial sums; NULL: none */
  int64_t cols;
  int rows, ahead; /* ahead: rows from here to the ones to prefetch */
  float mean[TGI_GROUP_ROWS_MAX], rstd[TGI_GROUP_ROWS_MAX];
  float mean_g[TGI_GROUP_ROWS_MAX], mean_gn[TGI_GROUP_ROWS_MAX];
  bool stream;
} bwd_group;

/* mean_j(g) and mean_j(g * n) of rows r .. r + count - 1 */
TGI_INLINE void means_of_rows(bwd_group *b, int r, int count, norm_dtypes t)
{
  vf sum[2][2], dot[2][2], mean[2];
  int64_t j = 0;
  TGI_UNROLLED(i, count)
  {
    sum[i][0] = sum[i][1] = dot[i][0] = dot[i][1] = vf_zero();
    mean[i] = vf_set1(b->mean[r + i]);
  }
  for (; j + 2 * TGI_LANES <= b->cols; j += 2 * TGI_LANES) {
    TGI_UNROLLED(k, 2)
    {
      const int64_t at_k = j + k * TGI_LANES;
      const vf w = norm_load(b->weight, t.weight, t.x, at_k, TGI_LANES);
      TGI_UNROLLED(i, count)
      {
        const vf g = norm_load(tgi_row_at(b->dy, r + i), t.y, t.x, at_k, TGI_LANES) * w;
        sum[i][k] = sum[i][k] + g;
        dot[i][k] = vf_fma(g, vf_load(tgi_row_at(b->x, r + i), t.x, at_k) - mean[i], dot[i][k]);
      }
    }
    if (j % (kAheadBwd * TGI_LANES) == 0) {
      TGI_UNROLLED(i, count)
      {
        tgi_prefetch(tgi_row_at(b->dy, r + i + b->ahead), t.y, j / kAheadBwd);
        tgi_prefetch(tgi_row_at(b->x, r + i + b->ahead), t.x, j / kAheadBwd);
      }
    }
  }
  for (; j < b->cols; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, b->cols - j);
    const vf w = norm_load(b->weight, t.weight, t.x, j, n);
    TGI_UNROLLED(i, count)
    {
      const vf g = norm_load(tgi_row_at(b->dy, r + i), t.y, t.x, j, n) * w;
      const vf x = vf_load_up_to(tgi_row_at(b->x, r + i), t.x, j, n);
      sum[i][0] = sum[i][0] + g;
      dot[i][0] = vf_fma(g, vf_first(x - mean[i], n), dot[i][0]);
    }
  }
  TGI_UNROLLED(i, count)
  {
    b->mean_g[r + i] = vf_sum(sum[i][0] + sum[i][1]) / (float)b->cols;
    b->mean_gn[r + i] = b->rstd[r + i] * (vf_sum(dot[i][0] + dot[i][1]) / (float)b->cols);
  }
}

TGI_INLINE void find_means(bwd_group *b, norm_dtypes t)
{
  int r = 0;
  for (; r + 2 <= b->rows; r += 2) {
    means_of_rows(b, r, 2, t);
  }
  if (r < b->rows) {
    means_of_rows(b, r, 1, t);
  }
}

/* Computes dx and the partial sums of `vectors` vectors of columns from j on; the last has n
 * elements. */
TGI_INLINE void write_tile(const bwd_group *b, int64_t j, int vectors, int64_t n, norm_dtypes t)
{
  const bool later = j >= b->cols / kAheadBwd; /* not prefetched by the first pass */
  vf w[kTile], sw[kTile], sb[kTile];
  TGI_UNROLLED(k, vectors)
  {
    const int64_t i = j + k * TGI_LANES;
    w[k] = norm_load(b->weight, t.weight, t.x, i, n);
    sw[k] = b->dweight ? vf_load_up_to(b->dweight, TG_F32, i, n) : vf_zero();
    sb[k] = b->dbias ? vf_load_up_to(b->dbias, TG_F32, i, n) : vf_zero();
  }
  for (int r = 0; r < b->rows; r++) {
    const vf mean = vf_set1(b->mean[r]), rstd = vf_set1(b->rstd[r]);
    const vf mean_g = vf_set1(b->mean_g[r]), mean_gn = vf_set1(b->mean_gn[r]);
    TGI_UNROLLED(k, vectors)
    {
      const int64_t i = j + k * TGI_LANES;
      const vf dy = norm_load(tgi_row_at(b->dy, r), t.y, t.x, i, n);
      const vf normal = (vf_load_up_to(tgi_row_at(b->x, r), t.x, i, n) - mean) * rstd;
      if (later) {
        tgi_prefetch_row(b->dy, r + b->ahead, t.y, i, k);
        tgi_prefetch_row(b->x, r + b->ahead, t.x, i, k);
      }
      sw[k] = vf_fma(dy, normal, sw[k]);
      sb[k] = sb[k] + dy;
      if (b->dx.first) {
        vf dx = rstd * (vf_fma(-normal, mean_gn, dy * w[k]) - mean_g);
        if (b->dresidual.first) {
          tgi_prefetch_row(b->dresidual, r + b->ahead, t.x, i, k);
          dx = vf_load_up_to(tgi_row_at(b->dresidual, r), t.x, i, n) + dx;
        }
        vf_put_up_to(tgi_row_at(b->dx, r), t.x, i, n, dx, b->stream);
      }
    }
  }
  TGI_UNROLLED(k, vectors)
  {
    if (b->dweight) {
      vf_put_up_to(b->dweight, TG_F32, j + k * TGI_LANES, n, sw[k], false);
      vf_put_up_to(b->dbias, TG_F32, j + k * TGI_LANES, n, sb[k], false);
    }
  }
}

TGI_INLINE void write_group(const bwd_group *b, norm_dtypes t)
{
  int64_t j = 0;
  for (; j + kTile * TGI_LANES <= b->cols; j += kTile * TGI_LANES) {
    write_tile(b, j, kTile, TGI_LANES, t);
  }
  for (; j < b->cols; j += TGI_LANES) {
    write_tile(b, j, 1, tgi_min_i64(TGI_LANES, b->cols - j), t);
  }
}

/* The group of rows i .. i + rows - 1, in a block that ends before row `last`. */
static bwd_group make_group(const bwd_job *job, int64_t block, int64_t i, int rows, int64_t last)
{
  const tg_layer_norm_bwd_args *a = job->a;
  bwd_group b = {.dy = tgi_rows_from(&a->dy, i),
                 .x = tgi_rows_from(&a->x, i),
                 .weight = a->weight.data,
                 .cols = a->x.shape[1],
                 .rows = rows,
                 .ahead = i + rows < last ? rows : 0,
                 .stream = job->stream};
  if (job->partial) {
    b.dweight = job->partial + block * 2 * b.cols;
    b.dbias = b.dweight + b.cols;
  }
  if (tgi_present(&a->dx)) {
    b.dx = tgi_rows_from(&a->dx, i);
  }
  if (tgi_present(&a->dresidual)) {
    b.dresidual = tgi_rows_from(&a->dresidual, i);
  }
  memcpy(b.mean, (const float *)a->mean.data + i, (size_t)rows * sizeof *b.mean);
  memcpy(b.rstd, (const float *)a->rstd.data + i, (size_t)rows * sizeof *b.rstd);
  return b;
}

static void bwd_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
  const bwd_job *job = arg;
  const tg_tensor *x = &job->a->x;
  const norm_dtypes t = {x->dtype, job->a->weight.dtype, job->a->dy.dtype};
  const int64_t step = tgi_group_rows(x, kGroupBytes);
  (void)thread;
  for (int64_t block = begin; block < end; block++) {
    const int64_t first = block * job->blocks.block_rows;
    const int64_t last = tgi_min_i64(job->blocks.rows, first + job->blocks.block_rows);
    if (job->partial) {
      const size_t floats = 2 * (size_t)x->shape[1];
      memset(job->partial + (size_t)block * floats, 0, floats * sizeof *job->partial);
    }
    for (int64_t i = first; i < last; i += step) {
      bwd_group b = make_group(job, block, i, (int)tgi_min_i64(step, last - i), last);
      if (tgi_present(&job->a->dx)) {
        SWITCH_NORM_DTYPES(t, true, T, find_means(&b, T));
      }
      SWITCH_NORM_DTYPES(t, true, T, write_group(&b, T));
    }
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
  snprintf(text, bytes, "%lld blocks of %lld rows, %lld rows at once, %s stores",
           (long long)job.blocks.count, (long long)job.blocks.block_rows,
           (long long)tgi_group_rows(&a->x, kGroupBytes), job.stream ? "streaming" : "cached");
}
