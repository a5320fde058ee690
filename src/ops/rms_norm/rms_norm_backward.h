/**
 * The rows of RMSNorm's backward, for the ops that are one with something beside it:
 *
 *   rms_norm      dx = norm'(dy)
 *   add_rms_norm  dx = norm'(dy) + dsum
 *
 * Method     A group of rows at a time. First the dot product of each row. Then dx and the partial
 *            sums of dweight, in tiles: the weight and the sums of a few columns stay in registers
 *            while the rows pass by. The second pass finds the group in the cache, and prefetches
 *            the next one.
 * Work       Blocks of cpu/column_sums.h; the bits do not depend on the size of groups or tiles.
 * Bound      Memory: dy, x and dsum are read, dx is written, past the caches if it is too large for
 *            them and does not replace an input.
 */
#ifndef TGI_OPS_RMS_NORM_BACKWARD_H
#define TGI_OPS_RMS_NORM_BACKWARD_H

#include "core/tensor_view.h"
#include "cpu/column_sums.h"
#include "cpu/unroll.h"
#include "ops/rms_norm/rms_norm_forward.h"

#include <string.h>

enum { kGroup = 8, kGroupBytes = 128 << 10, kTile = 4 };

/* dsum, dx: NULL or absent without one. */
typedef struct norm_backward {
  const tg_tensor *dy, *x, *weight, *rstd, *dsum, *dx;
  float offset;
  float *partial; /* [blocks, cols]; NULL without dweight */
  tgi_row_blocks blocks;
  bool stream;
} norm_backward;

/* What the compiler specialises the rows for: constants. */
typedef struct gradient_flags {
  bool dx, dsum, stream;
} gradient_flags;

/* Rows of one tensor: base, and bytes from one to the next. */
typedef struct norm_rows {
  char *first;
  int64_t step;
} norm_rows;

typedef struct norm_group {
  norm_rows dy, x, dsum, dx;
  const void *weight;
  float *partial; /* NULL: no sums */
  int64_t cols;
  int rows, ahead;                  /* ahead: rows from here to the ones to prefetch */
  float rstd[kGroup], mean[kGroup]; /* mean_j(g * n) */
  vf offset;
} norm_group;

static inline norm_rows rows_from(const tg_tensor *t, int64_t i)
{
  return (norm_rows){tgi_row(t, i), tgi_stride(t, 0) * (int64_t)tg_dtype_bytes(t->dtype)};
}

TGI_INLINE void *row_at(norm_rows rows, int r)
{
  return rows.first + r * rows.step;
}

/* Means of rows r .. r + count - 1. */
TGI_INLINE void find_means(norm_group *b, int r, int count, norm_dtypes t)
{
  vf dot[2][2] = {{vf_zero(), vf_zero()}, {vf_zero(), vf_zero()}};
  int64_t j = 0;
  for (; j + 2 * TGI_LANES <= b->cols; j += 2 * TGI_LANES) {
    for (int k = 0; k < 2; k++) {
      const int64_t at_k = j + k * TGI_LANES;
      const vf w = vf_load(b->weight, t.weight, at_k) + b->offset;
      for (int i = 0; i < count; i++) {
        const vf g = vf_load(row_at(b->dy, r + i), t.y, at_k) * w;
        dot[i][k] = vf_fma(g, vf_load(row_at(b->x, r + i), t.x, at_k), dot[i][k]);
      }
    }
  }
  for (; j < b->cols; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, b->cols - j);
    const vf w = vf_load_part(b->weight, t.weight, j, n) + b->offset;
    for (int i = 0; i < count; i++) {
      const vf g = vf_load_part(row_at(b->dy, r + i), t.y, j, n) * w;
      dot[i][0] = vf_fma(g, vf_load_part(row_at(b->x, r + i), t.x, j, n), dot[i][0]);
    }
  }
  for (int i = 0; i < count; i++) {
    b->mean[r + i] = b->rstd[r + i] * (vf_sum(dot[i][0] + dot[i][1]) / (float)b->cols);
  }
}

/* The next group's line of this vector, asked for once. */
TGI_INLINE void prefetch_line(norm_rows rows, int r, int t, int64_t j, int k)
{
  if (k * TGI_LANES * (t == TG_F32 ? 4 : 2) % 64 == 0) {
    tgi_prefetch(row_at(rows, r), t, j);
  }
}

/* dx and the partial sums of `vectors` vectors of columns from j on; the last has n elements. */
TGI_INLINE void write_tile(const norm_group *b, int64_t j, int vectors, int64_t n, norm_dtypes t,
                           gradient_flags f)
{
  vf w[kTile], sum[kTile];
  TGI_UNROLLED(k, vectors)
  {
    const int64_t i = j + k * TGI_LANES;
    w[k] = vf_load_up_to(b->weight, t.weight, i, n) + b->offset;
    sum[k] = b->partial ? vf_load_up_to(b->partial, TG_F32, i, n) : vf_zero();
  }
  for (int r = 0; r < b->rows; r++) {
    const void *dy_row = row_at(b->dy, r), *x_row = row_at(b->x, r);
    const vf rstd = vf_set1(b->rstd[r]), mean = vf_set1(b->mean[r]);
    TGI_UNROLLED(k, vectors)
    {
      const int64_t i = j + k * TGI_LANES;
      const vf dy = vf_load_up_to(dy_row, t.y, i, n);
      const vf normal = vf_load_up_to(x_row, t.x, i, n) * rstd;
      prefetch_line(b->dy, r + b->ahead, t.y, i, k);
      prefetch_line(b->x, r + b->ahead, t.x, i, k);
      sum[k] = vf_fma(dy, normal, sum[k]);
      if (f.dx) {
        vf dx = rstd * vf_fma(-normal, mean, dy * w[k]);
        if (f.dsum) {
          prefetch_line(b->dsum, r + b->ahead, t.x, i, k);
          dx = vf_load_up_to(row_at(b->dsum, r), t.x, i, n) + dx;
        }
        vf_put_up_to(row_at(b->dx, r), t.x, i, n, dx, f.stream);
      }
    }
  }
  TGI_UNROLLED(k, vectors)
  {
    if (b->partial) {
      vf_put_up_to(b->partial, TG_F32, j + k * TGI_LANES, n, sum[k], false);
    }
  }
}

TGI_INLINE void write_group(const norm_group *b, norm_dtypes t, gradient_flags f)
{
  int64_t j = 0;
  for (; j + kTile * TGI_LANES <= b->cols; j += kTile * TGI_LANES) {
    write_tile(b, j, kTile, TGI_LANES, t, f);
  }
  for (; j < b->cols; j += TGI_LANES) {
    write_tile(b, j, 1, tgi_min_i64(TGI_LANES, b->cols - j), t, f);
  }
}

/* Rows i .. i + rows - 1 of a block that ends before row `last`. */
TGI_INLINE void backward_group(const norm_backward *job, float *partial, int64_t i, int rows,
                               int64_t last, norm_dtypes t, gradient_flags f)
{
  norm_group b = {.dy = rows_from(job->dy, i),
                  .x = rows_from(job->x, i),
                  .weight = job->weight->data,
                  .partial = partial,
                  .cols = job->x->shape[1],
                  .rows = rows,
                  .ahead = i + rows < last ? rows : 0,
                  .offset = vf_set1(job->offset)};
  memcpy(b.rstd, (const float *)job->rstd->data + i, (size_t)rows * sizeof *b.rstd);
  if (f.dx) {
    int r = 0;
    b.dx = rows_from(job->dx, i);
    for (; r + 2 <= rows; r += 2) {
      find_means(&b, r, 2, t);
    }
    if (r < rows) {
      find_means(&b, r, 1, t);
    }
  }
  if (f.dsum) {
    b.dsum = rows_from(job->dsum, i);
  }
  write_group(&b, t, f);
}

/* Rows of a group: of wide rows as many as leave the cache room for the next group. */
static inline int64_t norm_group_rows(const norm_backward *job)
{
  const int64_t row_bytes = job->x->shape[1] * (int64_t)tg_dtype_bytes(job->x->dtype);
  const int64_t rows = kGroupBytes / row_bytes;
  return rows > kGroup ? kGroup : rows > 4 ? rows : 4;
}

TGI_INLINE void backward_block_as(const norm_backward *job, int64_t block, norm_dtypes t,
                                  gradient_flags f)
{
  const int64_t first = block * job->blocks.block_rows, cols = job->x->shape[1];
  const int64_t last = tgi_min_i64(job->blocks.rows, first + job->blocks.block_rows);
  const int64_t step = norm_group_rows(job);
  float *partial = job->partial ? job->partial + block * cols : NULL;
  if (partial) {
    memset(partial, 0, (size_t)cols * sizeof *partial);
  }
  for (int64_t i = first; i < last; i += step) {
    backward_group(job, partial, i, (int)tgi_min_i64(step, last - i), last, t, f);
  }
}

TGI_INLINE void backward_block_flags(const norm_backward *job, int64_t block, norm_dtypes t,
                                     bool dsum)
{
  if (!tgi_present(job->dx)) {
    backward_block_as(job, block, t, (gradient_flags){false, false, false});
  } else if (job->stream) {
    backward_block_as(job, block, t, (gradient_flags){true, dsum, true});
  } else {
    backward_block_as(job, block, t, (gradient_flags){true, dsum, false});
  }
}

/* Blocks [begin, end) of a call; `dsum` is a constant in the caller. dtypes of (x, weight, dy):
 * (t, t, t), (t, f32, t), (t, f32, f32). */
TGI_INLINE void norm_backward_blocks(const norm_backward *job, int64_t begin, int64_t end,
                                     bool dsum)
{
  const norm_dtypes t = {job->x->dtype, job->weight->dtype, job->dy->dtype};
  for (int64_t block = begin; block < end; block++) {
    TGI_SWITCH_FLOAT(
        t.x, X, const norm_dtypes same = {X, X, X}, wide_weight = {X, TG_F32, X},
        wide = {X, TG_F32, TG_F32};
        if (t.y != X) { backward_block_flags(job, block, wide, dsum); }                  //
        else if (t.weight != X) { backward_block_flags(job, block, wide_weight, dsum); } //
        else { backward_block_flags(job, block, same, dsum); });
  }
  vf_stream_fence();
}

/* Bytes of the partial sums. */
static inline size_t norm_backward_bytes(const tg_tensor *x, const tg_tensor *dweight)
{
  const int64_t floats = tgi_cut_rows(x->shape[0]).count * x->shape[1];
  return tgi_present(dweight) ? (size_t)floats * sizeof(float) : 0;
}

/* Adds the blocks' sums to dweight. */
static inline void norm_backward_finish(const tg_context *ctx, const norm_backward *job,
                                        const tg_tensor *dweight)
{
  const int64_t cols = job->x->shape[1];
  if (job->partial) {
    tgi_add_column_sums(ctx, (tgi_column_sums){dweight->data, dweight->dtype, job->partial, cols,
                                               cols, job->blocks.count});
  }
}

static inline void norm_backward_plan(const norm_backward *job, char *text, size_t bytes)
{
  snprintf(text, bytes, "%lld blocks of %lld rows, %lld rows at once, %s stores",
           (long long)job->blocks.count, (long long)job->blocks.block_rows,
           (long long)norm_group_rows(job), job->stream ? "streaming" : "cached");
}

#endif
