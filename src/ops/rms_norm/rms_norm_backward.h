/**
 * The rows of RMSNorm's backward, for the ops that are one with something before or behind it:
 *
 *   rms_norm         dx = norm'(dy)
 *   add_rms_norm     dx = norm'(dy) + dsum
 *   rms_norm_swiglu  dx = norm'(dy * silu(gate)), dgate = dy * norm(x) * silu'(gate)
 *
 * Method     A group of rows at a time. First the dot product of each row. Then dx and the partial
 *            sums of dweight, in tiles: the weight and the sums of a few columns stay in registers
 *            while the rows pass by. The second pass finds the group in the cache, and prefetches
 *            the next one; of three inputs the first pass prefetches two, so that memory has
 *            something to do meanwhile (with two inputs that is slower).
 * Work       Blocks of cpu/column_sums.h; the bits do not depend on the size of groups or tiles.
 * Bound      Memory: dy, x and dsum or gate are read, dx and dgate are written, past the caches if
 *            they are too large for them and do not replace an input.
 */
#ifndef TGI_OPS_RMS_NORM_BACKWARD_H
#define TGI_OPS_RMS_NORM_BACKWARD_H

#include "cpu/column_sums.h"
#include "cpu/row_pass.h"
#include "cpu/unroll.h"
#include "ops/rms_norm/rms_norm_forward.h"

#include <string.h>

enum {
  kTile = TGI_LANES / 4, /* vectors: as the registers of each instruction set allow */
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

/* What the compiler specialises the rows for: constants. */
typedef struct gradient_flags {
  norm_kind kind;
  bool dx, dsum, dgate, stream;
} gradient_flags;

typedef struct norm_group {
  tgi_rows dy, x, gate, dsum, dx, dgate;
  const void *weight;
  float *partial; /* NULL: no sums */
  int64_t cols;
  int rows, ahead; /* ahead: rows from here to the ones to prefetch */
  float rstd[TGI_GROUP_ROWS_MAX], mean[TGI_GROUP_ROWS_MAX]; /* mean_j(g * n) */
  vf offset;
} norm_group;

/* What reaches the norm of row r: n <= TGI_LANES elements. */
TGI_INLINE vf load_upstream(const norm_group *b, int r, norm_dtypes t, int64_t j, int64_t n,
                            bool gated)
{
  vf dy = vf_load_up_to(tgi_row_at(b->dy, r), t.y, j, n);
  if (gated) {
    dy = dy * vf_silu(vf_load_up_to(tgi_row_at(b->gate, r), t.x, j, n));
  }
  return dy;
}

/* Means of rows r .. r + count - 1. */
TGI_INLINE void means_of_rows(norm_group *b, int r, int count, norm_dtypes t, bool gated,
                              bool fetch)
{
  vf dot[2][2] = {{vf_zero(), vf_zero()}, {vf_zero(), vf_zero()}};
  int64_t j = 0;
  for (; j + 2 * TGI_LANES <= b->cols; j += 2 * TGI_LANES) {
    for (int k = 0; k < 2; k++) {
      const int64_t at_k = j + k * TGI_LANES;
      const vf w = vf_load(b->weight, t.weight, at_k) + b->offset;
      for (int i = 0; i < count; i++) {
        const vf g = load_upstream(b, r + i, t, at_k, TGI_LANES, gated) * w;
        dot[i][k] = vf_fma(g, vf_load(tgi_row_at(b->x, r + i), t.x, at_k), dot[i][k]);
        if (fetch) {
          tgi_prefetch_row(b->dy, r + i + b->ahead, t.y, at_k, k);
          tgi_prefetch_row(b->x, r + i + b->ahead, t.x, at_k, k);
        }
      }
    }
  }
  for (; j < b->cols; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, b->cols - j);
    const vf w = vf_load_part(b->weight, t.weight, j, n) + b->offset;
    for (int i = 0; i < count; i++) {
      const vf g = load_upstream(b, r + i, t, j, n, gated) * w;
      dot[i][0] = vf_fma(g, vf_load_part(tgi_row_at(b->x, r + i), t.x, j, n), dot[i][0]);
    }
  }
  for (int i = 0; i < count; i++) {
    const double mean = vf_sum_f64(dot[i][0] + dot[i][1]) / (double)b->cols;
    b->mean[r + i] = (float)((double)b->rstd[r + i] * mean);
  }
}

TGI_INLINE void find_means_as(norm_group *b, norm_dtypes t, bool gated, bool fetch)
{
  int r = 0;
  for (; r + 2 <= b->rows; r += 2) {
    means_of_rows(b, r, 2, t, gated, fetch);
  }
  if (r < b->rows) {
    means_of_rows(b, r, 1, t, gated, fetch);
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
    const void *dy_row = tgi_row_at(b->dy, r), *x_row = tgi_row_at(b->x, r);
    const vf rstd = vf_set1(b->rstd[r]), mean = vf_set1(b->mean[r]);
    TGI_UNROLLED(k, vectors)
    {
      const int64_t i = j + k * TGI_LANES;
      const vf normal = vf_load_up_to(x_row, t.x, i, n) * rstd;
      vf dy = vf_load_up_to(dy_row, t.y, i, n);
      if (!f.dsum) {
        tgi_prefetch_row(b->dy, r + b->ahead, t.y, i, k);
        tgi_prefetch_row(b->x, r + b->ahead, t.x, i, k);
      }
      if (f.kind == NORM_GATED) {
        vf silu;
        const vf slope = vf_silu_both(vf_load_up_to(tgi_row_at(b->gate, r), t.x, i, n), t.x, &silu);
        tgi_prefetch_row(b->gate, r + b->ahead, t.x, i, k);
        if (f.dgate) {
          vf_put_up_to(tgi_row_at(b->dgate, r), t.x, i, n, dy * normal * slope * w[k], f.stream);
        }
        dy = dy * silu;
      }
      sum[k] = vf_fma(dy, normal, sum[k]);
      if (f.dx) {
        /* The larger product is the one that is not rounded. */
        vf dx = rstd * vf_fma(dy, w[k], -(normal * mean));
        if (f.dsum) {
          tgi_prefetch_row(b->dsum, r + b->ahead, t.x, i, k);
          dx = vf_load_up_to(tgi_row_at(b->dsum, r), t.x, i, n) + dx;
        }
        vf_put_up_to(tgi_row_at(b->dx, r), t.x, i, n, dx, f.stream);
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

/* One instance for all kinds of second pass. */
static inline void find_means(norm_group *b, norm_dtypes t, gradient_flags f)
{
  if (f.kind == NORM_GATED) {
    SWITCH_NORM_DTYPES(t, false, T, find_means_as(b, T, true, false));
  } else if (f.dsum) {
    SWITCH_NORM_DTYPES(t, true, T, find_means_as(b, T, false, true));
  } else {
    SWITCH_NORM_DTYPES(t, true, T, find_means_as(b, T, false, false));
  }
}

/* Rows i .. i + rows - 1 of a block that ends before row `last`. */
static inline norm_group make_group(const norm_backward *job, float *partial, int64_t i, int rows,
                                    int64_t last)
{
  norm_group b = {.dy = tgi_rows_from(job->dy, i),
                  .x = tgi_rows_from(job->x, i),
                  .weight = job->weight->data,
                  .cols = job->x->shape[1],
                  .rows = rows,
                  .ahead = i + rows < last ? rows : 0,
                  .offset = vf_set1(job->offset)};
  b.partial = partial;
  memcpy(b.rstd, (const float *)job->rstd->data + i, (size_t)rows * sizeof *b.rstd);
  return b;
}

TGI_INLINE void backward_block_as(const norm_backward *job, int64_t block, norm_dtypes t,
                                  gradient_flags f)
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
    if (f.kind == NORM_GATED) {
      b.gate = tgi_rows_from(job->gate, i);
    }
    if (f.dgate) {
      b.dgate = tgi_rows_from(job->dgate, i);
    }
    if (f.dsum) {
      b.dsum = tgi_rows_from(job->dsum, i);
    }
    if (f.dx) {
      b.dx = tgi_rows_from(job->dx, i);
      find_means(&b, t, f);
    }
    write_group(&b, t, f);
  }
}

/* `f.stream` is not settled yet. */
TGI_INLINE void backward_block_stored(const norm_backward *job, int64_t block, norm_dtypes t,
                                      gradient_flags f)
{
  if (job->stream && (f.dx || f.dgate)) {
    f.stream = true;
    backward_block_as(job, block, t, f);
  } else {
    f.stream = false;
    backward_block_as(job, block, t, f);
  }
}

/* Blocks [begin, end) of a call; the flags are constants in the caller. */
TGI_INLINE void norm_backward_blocks(const norm_backward *job, int64_t begin, int64_t end,
                                     gradient_flags f)
{
  const norm_dtypes t = {job->x->dtype, job->weight->dtype, job->dy->dtype};
  for (int64_t block = begin; block < end; block++) {
    SWITCH_NORM_DTYPES(t, f.kind != NORM_GATED, T, backward_block_stored(job, block, T, f));
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
           (long long)tgi_group_rows(job->x, kGroupBytes), job->stream ? "streaming" : "cached");
}

#endif
