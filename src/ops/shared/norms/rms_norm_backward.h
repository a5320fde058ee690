/**
 * RMSNorm backward on the CPU, for rms_norm and the ops that fuse a step before or after it:
 *
 *   rms_norm         dx = norm'(dy)
 *   add_rms_norm     dx = norm'(dy) + dsum
 *   rms_norm_swiglu  dx = norm'(dy * silu(gate)), dgate = dy * norm(x) * silu'(gate)
 *
 * Method     Two passes over a group of rows that fits the cache. The first computes the dot
 *            product of each row. The second computes dx and the partial sums of dweight, tile by
 *            tile: the weight and the sums of a few columns stay in registers over all rows of the
 *            group. The second pass prefetches the next group. With three inputs the first pass
 *            prefetches two of them instead, which spreads the traffic over both passes; with two
 *            inputs that is slower.
 * Work       Threads process the row blocks of cpu/column_sums.h. The bits do not depend on the
 *            size of groups or tiles.
 * Bound      Memory bandwidth: dy, x and dsum or gate are read, dx and dgate are written. Outputs
 *            larger than the caches use streaming stores, unless they alias an input.
 */
#ifndef TGI_OPS_RMS_NORM_BACKWARD_H
#define TGI_OPS_RMS_NORM_BACKWARD_H

#include "cpu/column_sums.h"
#include "cpu/row_pass.h"
#include "cpu/unroll.h"
#include "ops/shared/norms/rms_norm_forward.h"

#include <string.h>

enum {
  kTile = TGI_LANES / 4, /* vectors; limited by the registers of each instruction set */
  kGroupBytes = 128 << 10,
};

/* gate: NULL without one; dsum, dx, dgate: NULL or absent without one. */
typedef struct norm_backward {
  const tg_tensor *dy, *x, *gate, *weight, *rstd, *dsum, *dx, *dgate;
  float offset;
  float *partial; /* [blocks, cols]; NULL without dweight */
  tgi_row_blocks blocks;
  bool stream;
} norm_backward;

typedef struct norm_group {
  tgi_rows dy, x, gate, dsum, dx, dgate; /* absent where `first` is NULL */
  const void *weight;
  float *partial; /* NULL: no sums */
  int64_t cols;
  int rows, ahead; /* ahead: rows from here to the ones to prefetch */
  float rstd[TGI_GROUP_ROWS_MAX], mean[TGI_GROUP_ROWS_MAX]; /* mean_j(g * n) */
  vf offset;
  bool stream;
} norm_group;

/* Whether the gradient of the sum is given. */
TGI_INLINE bool has_dsum(const norm_group *b, norm_kind kind)
{
  return kind == NORM_OF_SUM && b->dsum.first;
}

/* The upstream gradient of the norm in row r: n <= TGI_LANES elements. */
TGI_INLINE vf load_upstream(const norm_group *b, int r, norm_dtypes t, int64_t j, int64_t n,
                            norm_kind kind)
{
  vf dy = norm_load(tgi_row_at(b->dy, r), t.y, t.x, j, n);
  if (kind == NORM_GATED) {
    dy = dy * vf_silu(vf_load_up_to(tgi_row_at(b->gate, r), t.x, j, n));
  }
  return dy;
}

/* mean_j(g * n) of rows r .. r + count - 1. */
TGI_INLINE void means_of_rows(norm_group *b, int r, int count, norm_dtypes t, norm_kind kind)
{
  vf dot[2][2] = {{vf_zero(), vf_zero()}, {vf_zero(), vf_zero()}};
  int64_t j = 0;
  for (; j + 2 * TGI_LANES <= b->cols; j += 2 * TGI_LANES) {
    TGI_UNROLLED(k, 2)
    {
      const int64_t at_k = j + k * TGI_LANES;
      const vf w = norm_load(b->weight, t.weight, t.x, at_k, TGI_LANES) + b->offset;
      TGI_UNROLLED(i, count)
      {
        const vf g = load_upstream(b, r + i, t, at_k, TGI_LANES, kind) * w;
        dot[i][k] = vf_fma(g, vf_load(tgi_row_at(b->x, r + i), t.x, at_k), dot[i][k]);
        if (has_dsum(b, kind)) {
          tgi_prefetch_row(b->dy, r + i + b->ahead, t.y, at_k, k);
          tgi_prefetch_row(b->x, r + i + b->ahead, t.x, at_k, k);
        }
      }
    }
  }
  for (; j < b->cols; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, b->cols - j);
    const vf w = norm_load(b->weight, t.weight, t.x, j, n) + b->offset;
    TGI_UNROLLED(i, count)
    {
      const vf g = load_upstream(b, r + i, t, j, n, kind) * w;
      dot[i][0] = vf_fma(g, vf_load_part(tgi_row_at(b->x, r + i), t.x, j, n), dot[i][0]);
    }
  }
  TGI_UNROLLED(i, count)
  {
    const double mean = vf_sum_f64(dot[i][0] + dot[i][1]) / (double)b->cols;
    b->mean[r + i] = (float)((double)b->rstd[r + i] * mean);
  }
}

TGI_INLINE void find_means(norm_group *b, norm_dtypes t, norm_kind kind)
{
  int r = 0;
  for (; r + 2 <= b->rows; r += 2) {
    means_of_rows(b, r, 2, t, kind);
  }
  if (r < b->rows) {
    means_of_rows(b, r, 1, t, kind);
  }
}

/* Computes dx and the partial sums of `vectors` vectors of columns from j on; the last has n
 * elements. `has_dx` is a compile-time constant except with a gate, whose arithmetic hides the
 * branch. */
TGI_INLINE void write_tile(const norm_group *b, int64_t j, int vectors, int64_t n, norm_dtypes t,
                           norm_kind kind, bool has_dx)
{
  vf w[kTile], sum[kTile];
  TGI_UNROLLED(k, vectors)
  {
    const int64_t i = j + k * TGI_LANES;
    w[k] = norm_load(b->weight, t.weight, t.x, i, n) + b->offset;
    sum[k] = b->partial ? vf_load_up_to(b->partial, TG_F32, i, n) : vf_zero();
  }
  for (int r = 0; r < b->rows; r++) {
    const void *dy_row = tgi_row_at(b->dy, r), *x_row = tgi_row_at(b->x, r);
    const vf rstd = vf_set1(b->rstd[r]), mean = vf_set1(b->mean[r]);
    TGI_UNROLLED(k, vectors)
    {
      const int64_t i = j + k * TGI_LANES;
      const vf normal = vf_load_up_to(x_row, t.x, i, n) * rstd;
      vf dy = norm_load(dy_row, t.y, t.x, i, n);
      if (!has_dsum(b, kind)) {
        tgi_prefetch_row(b->dy, r + b->ahead, t.y, i, k);
        tgi_prefetch_row(b->x, r + b->ahead, t.x, i, k);
      }
      if (kind == NORM_GATED) {
        vf silu;
        const vf slope = vf_silu_both(vf_load_up_to(tgi_row_at(b->gate, r), t.x, i, n), t.x, &silu);
        tgi_prefetch_row(b->gate, r + b->ahead, t.x, i, k);
        if (b->dgate.first) {
          vf_put_up_to(tgi_row_at(b->dgate, r), t.x, i, n, dy * normal * slope * w[k], b->stream);
        }
        dy = dy * silu;
      }
      sum[k] = vf_fma(dy, normal, sum[k]);
      if (has_dx) {
        /* The fma leaves the larger product unrounded. */
        vf dx = rstd * vf_fma(dy, w[k], -(normal * mean));
        if (has_dsum(b, kind)) {
          tgi_prefetch_row(b->dsum, r + b->ahead, t.x, i, k);
          dx = vf_load_up_to(tgi_row_at(b->dsum, r), t.x, i, n) + dx;
        }
        vf_put_up_to(tgi_row_at(b->dx, r), t.x, i, n, dx, b->stream);
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

TGI_INLINE void write_group(const norm_group *b, norm_dtypes t, norm_kind kind, bool dx)
{
  int64_t j = 0;
  for (; j + kTile * TGI_LANES <= b->cols; j += kTile * TGI_LANES) {
    write_tile(b, j, kTile, TGI_LANES, t, kind, dx);
  }
  for (; j < b->cols; j += TGI_LANES) {
    write_tile(b, j, 1, tgi_min_i64(TGI_LANES, b->cols - j), t, kind, dx);
  }
}

static inline tgi_rows rows_if_present(const tg_tensor *t, int64_t i)
{
  return t && tgi_present(t) ? tgi_rows_from(t, i) : (tgi_rows){NULL, 0};
}

/* The group of rows i .. i + rows - 1, in a block that ends before row `last`. */
static inline norm_group make_group(const norm_backward *job, float *partial, int64_t i, int rows,
                                    int64_t last)
{
  norm_group b = {.dy = tgi_rows_from(job->dy, i),
                  .x = tgi_rows_from(job->x, i),
                  .gate = rows_if_present(job->gate, i),
                  .dsum = rows_if_present(tgi_present(job->dx) ? job->dsum : NULL, i),
                  .dx = rows_if_present(job->dx, i),
                  .dgate = rows_if_present(job->dgate, i),
                  .weight = job->weight->data,
                  .cols = job->x->shape[1],
                  .rows = rows,
                  .ahead = i + rows < last ? rows : 0,
                  .offset = vf_set1(job->offset),
                  .stream = job->stream};
  b.partial = partial;
  memcpy(b.rstd, (const float *)job->rstd->data + i, (size_t)rows * sizeof *b.rstd);
  return b;
}

TGI_INLINE void backward_block_as(const norm_backward *job, int64_t block, norm_dtypes t,
                                  norm_kind kind)
{
  const int64_t first = block * job->blocks.block_rows, cols = job->x->shape[1];
  const int64_t last = tgi_min_i64(job->blocks.rows, first + job->blocks.block_rows);
  const int64_t step = tgi_group_rows(job->x, kGroupBytes);
  float *partial = job->partial ? job->partial + block * cols : NULL;
  if (partial) {
    memset(partial, 0, (size_t)cols * sizeof *partial);
  }
  for (int64_t i = first; i < last; i += step) {
    norm_group b = make_group(job, partial, i, (int)tgi_min_i64(step, last - i), last);
    const bool dx = b.dx.first;
    if (dx) {
      find_means(&b, t, kind);
    }
    if (kind == NORM_GATED) {
      write_group(&b, t, kind, dx);
    } else if (dx) {
      write_group(&b, t, kind, true);
    } else {
      write_group(&b, t, kind, false);
    }
  }
}

/* Processes blocks [begin, end) of a call; `kind` is a constant in the caller. */
TGI_INLINE void norm_backward_blocks(const norm_backward *job, int64_t begin, int64_t end,
                                     norm_kind kind)
{
  const norm_dtypes t = {job->x->dtype, job->weight->dtype, job->dy->dtype};
  for (int64_t block = begin; block < end; block++) {
    SWITCH_NORM_DTYPES(t, kind != NORM_GATED, T, backward_block_as(job, block, T, kind));
  }
  vf_stream_fence();
}

/* Workspace bytes: the partial sums. */
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
           (long long)tgi_group_rows(job->x, kGroupBytes), job->stream ? "streaming" : "cached");
}

#endif
