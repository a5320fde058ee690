/**
 * RMSNorm forward on the CPU, for rms_norm and the ops that fuse a step before or after it:
 *
 *   rms_norm         s = x                        y = norm(s)
 *   add_rms_norm     s = round_x(x + residual)    y = norm(s); s is also an output
 *   rms_norm_swiglu  s = x                        y = norm(s) * silu(gate)
 *
 *   norm(s) = s * rstd * (offset + weight),  rstd = 1 / sqrt(mean(s^2) + eps)
 *
 * Method     Two passes per row: the sum of squares of s, then the outputs. The second pass
 *            recomputes s from the inputs, which are then in the cache, so no output is read. It
 *            prefetches the next row.
 * Work       Threads process chunks of rows of at most 512 KiB.
 * Bound      Memory bandwidth. Outputs larger than the caches use streaming stores, which avoid
 *            reading their cache lines first, unless an output aliases an input.
 */
#ifndef TGI_OPS_RMS_NORM_FORWARD_H
#define TGI_OPS_RMS_NORM_FORWARD_H

#include "cpu/norm_dtypes.h"
#include "cpu/row_pass.h"
#include "cpu/silu_math.h"
#include "cpu/unroll.h"
#include "tegula/rms_norm.h"

#include <math.h>
#include <stdio.h>

typedef enum norm_kind { NORM_ALONE, NORM_OF_SUM, NORM_GATED } norm_kind;

/* residual, sum: NULL without an addition; gate: NULL without one. */
typedef struct norm_forward {
  const tg_tensor *x, *residual, *gate, *weight, *sum, *y, *rstd;
  float eps, offset;
  bool rounds;               /* every step: the normalised row, its product with the weight */
  bool stream_y, stream_sum; /* streaming stores; sum only together with y */
} norm_forward;

/* Compile-time constants that the row loops are specialised for. */
typedef struct norm_flags {
  norm_kind kind;
  bool rounds;
} norm_flags;

typedef struct norm_row {
  const void *x, *weight, *next_x, *other, *next_other; /* other: of residual or gate; next: the
                                                         * row to prefetch */
  void *sum, *y;
  int64_t cols;
  vf rstd, offset;
  bool stream_y, stream_sum;
} norm_row;

TGI_INLINE vf load_sum(const norm_row *f, int t, int64_t j, int64_t n, bool add)
{
  const vf x = vf_load_up_to(f->x, t, j, n);
  return add ? vf_round(t, vf_load_up_to(f->other, t, j, n) + x) : x;
}

/* Four accumulators hide the latency of the fma. */
TGI_INLINE double sum_of_squares_as(const norm_row *f, int t, bool add)
{
  vf s[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
  int64_t j = 0;
  for (; j + 4 * TGI_LANES <= f->cols; j += 4 * TGI_LANES) {
    TGI_UNROLLED(k, 4)
    {
      const vf v = load_sum(f, t, j + k * TGI_LANES, TGI_LANES, add);
      s[k] = vf_fma(v, v, s[k]);
    }
  }
  for (; j < f->cols; j += TGI_LANES) {
    const vf v = load_sum(f, t, j, tgi_min_i64(TGI_LANES, f->cols - j), add);
    s[0] = vf_fma(v, v, s[0]);
  }
  return vf_sum_f64((s[0] + s[1]) + (s[2] + s[3]));
}

/* Not inlined into each variant of the second pass: one instance serves all. */
static inline double sum_of_squares(const norm_row *f, int t, bool add)
{
  double sum;
  if (add) {
    TGI_SWITCH_FLOAT(t, T, sum = sum_of_squares_as(f, T, true));
  } else {
    TGI_SWITCH_FLOAT(t, T, sum = sum_of_squares_as(f, T, false));
  }
  return sum;
}

/* Computes and stores n <= TGI_LANES results. */
TGI_INLINE void write_results(const norm_row *f, norm_dtypes t, int64_t j, int64_t n, norm_flags k)
{
  const vf w = norm_load(f->weight, t.weight, t.x, j, n) + f->offset;
  const vf s = load_sum(f, t.x, j, n, k.kind == NORM_OF_SUM), scaled = s * f->rstd;
  vf y = (k.rounds ? vf_round(t.x, scaled) : scaled) * w;
  if (k.kind == NORM_GATED) {
    y = (k.rounds && t.weight != TG_F32 ? vf_round(t.x, y) : y) *
        vf_silu(vf_load_up_to(f->other, t.x, j, n));
  }
  if (k.kind == NORM_OF_SUM) {
    vf_put_up_to(f->sum, t.x, j, n, s, f->stream_sum);
  }
  norm_put(f->y, t.y, t.x, j, n, y, f->stream_y);
}

TGI_INLINE void write_row(const norm_row *f, norm_dtypes t, norm_flags k)
{
  int64_t j = 0;
  for (; j + TGI_LANES <= f->cols; j += TGI_LANES) {
    tgi_prefetch(f->next_x, t.x, j);
    if (k.kind != NORM_ALONE) {
      tgi_prefetch(f->next_other, t.x, j);
    }
    write_results(f, t, j, TGI_LANES, k);
  }
  if (j < f->cols) {
    write_results(f, t, j, f->cols - j, k);
  }
}

TGI_INLINE void forward_rows_as(const norm_forward *job, int64_t begin, int64_t end, norm_dtypes t,
                                norm_flags k)
{
  const tg_tensor *other = k.kind == NORM_GATED ? job->gate : job->residual;
  float *rstd = job->rstd->data;
  norm_row f = {.weight = job->weight->data,
                .cols = job->x->shape[1],
                .offset = vf_set1(job->offset),
                .stream_y = job->stream_y,
                .stream_sum = job->stream_sum};
  for (int64_t i = begin; i < end; i++) {
    const int64_t next = i + 1 < end ? i + 1 : i;
    f.x = tgi_row(job->x, i);
    f.next_x = tgi_row(job->x, next);
    f.y = tgi_row(job->y, i);
    if (k.kind != NORM_ALONE) {
      f.other = tgi_row(other, i);
      f.next_other = tgi_row(other, next);
    }
    if (k.kind == NORM_OF_SUM) {
      f.sum = tgi_row(job->sum, i);
    }
    const double squares = sum_of_squares(&f, t.x, k.kind == NORM_OF_SUM);
    const float r = (float)(1 / sqrt(squares / (double)f.cols + (double)job->eps));
    f.rstd = vf_set1(r);
    write_row(&f, t, k);
    if (rstd) {
      rstd[i] = r;
    }
  }
}

TGI_INLINE void forward_rows_rounded(const norm_forward *job, int64_t begin, int64_t end,
                                     norm_dtypes t, norm_kind kind)
{
  if (job->rounds && t.x != TG_F32) {
    forward_rows_as(job, begin, end, t, (norm_flags){kind, true});
  } else {
    forward_rows_as(job, begin, end, t, (norm_flags){kind, false});
  }
}

/* Processes rows [begin, end) of a call; `kind` is a constant in the caller. */
TGI_INLINE void norm_forward_rows(const norm_forward *job, int64_t begin, int64_t end,
                                  norm_kind kind)
{
  const norm_dtypes t = {job->x->dtype, job->weight->dtype, job->y->dtype};
  SWITCH_NORM_DTYPES(t, kind != NORM_GATED, T, forward_rows_rounded(job, begin, end, T, kind));
  vf_stream_fence();
}

static inline void norm_forward_plan(const norm_forward *job, char *text, size_t bytes)
{
  snprintf(text, bytes, "chunks of %lld rows, %s stores", (long long)tgi_chunk_rows(job->x),
           job->stream_y ? "streaming" : "cached");
}

#endif
