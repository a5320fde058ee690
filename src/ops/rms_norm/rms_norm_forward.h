/**
 * The rows of RMSNorm's forward, for the ops that are one with something before it:
 *
 *   rms_norm      s = x
 *   add_rms_norm  s = round_x(x + residual), which is a result too
 *
 *   y = s * rstd * (offset + weight),  rstd = 1 / sqrt(mean(s^2) + eps)
 *
 * Method     One row at a time: the sum of squares of s, then the results. The second pass computes
 *            s again from what the first left in the cache, so that no result is read, and
 *            prefetches the next row.
 * Work       Chunks of rows of at most 512 KiB.
 * Bound      Memory. Results too large for the caches are stored past them, which saves reading
 *            their lines first, unless they replace an input.
 */
#ifndef TGI_OPS_RMS_NORM_FORWARD_H
#define TGI_OPS_RMS_NORM_FORWARD_H

#include "core/context_state.h"
#include "core/tensor_view.h"
#include "cpu/simd.h"
#include "tegula/rms_norm.h"

#include <math.h>
#include <stdio.h>

enum { kChunkBytes = 512 << 10 };

/* residual, sum: NULL without an addition. */
typedef struct norm_forward {
  const tg_tensor *x, *residual, *weight, *sum, *y, *rstd;
  float eps, offset;
  tg_rms_norm_policy policy;
  bool stream_y, stream_sum; /* past the caches; the sum only together with y */
} norm_forward;

typedef struct norm_dtypes {
  int x, weight, y; /* x: of residual and sum too; y: of dy in the backward */
} norm_dtypes;

/* What the compiler specialises the rows for: constants. */
typedef struct norm_flags {
  bool add, llama, stream_y, stream_sum;
} norm_flags;

typedef struct norm_row {
  const void *x, *residual, *weight, *next_x, *next_residual; /* next: the row to prefetch */
  void *sum, *y;
  int64_t cols;
  vf rstd, offset;
} norm_row;

/* Whether `t`, written beside the reading of `input`, goes past the caches. */
static inline bool norm_streams(const tg_context *ctx, const tg_tensor *t, const tg_tensor *input)
{
  return t->data != input->data &&
         tgi_streamable(t->data, tgi_stride(t, 0), tg_dtype_bytes(t->dtype)) &&
         tgi_exceeds_cache(ctx, tgi_span_bytes(t));
}

TGI_INLINE vf load_sum(const norm_row *f, int t, int64_t j, int64_t n, bool add)
{
  const vf x = vf_load_up_to(f->x, t, j, n);
  return add ? vf_round(t, vf_load_up_to(f->residual, t, j, n) + x) : x;
}

/* Four accumulators hide the latency of the fma. */
TGI_INLINE float sum_of_squares_as(const norm_row *f, int t, bool add)
{
  vf s[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
  int64_t j = 0;
  for (; j + 4 * TGI_LANES <= f->cols; j += 4 * TGI_LANES) {
    for (int k = 0; k < 4; k++) {
      const vf v = load_sum(f, t, j + k * TGI_LANES, TGI_LANES, add);
      s[k] = vf_fma(v, v, s[k]);
    }
  }
  for (; j < f->cols; j += TGI_LANES) {
    const vf v = load_sum(f, t, j, tgi_min_i64(TGI_LANES, f->cols - j), add);
    s[0] = vf_fma(v, v, s[0]);
  }
  return vf_sum((s[0] + s[1]) + (s[2] + s[3]));
}

/* One instance for all kinds of second pass. */
static inline float sum_of_squares(const norm_row *f, int t, bool add)
{
  float sum;
  if (add) {
    TGI_SWITCH_FLOAT(t, T, sum = sum_of_squares_as(f, T, true));
  } else {
    TGI_SWITCH_FLOAT(t, T, sum = sum_of_squares_as(f, T, false));
  }
  return sum;
}

/* n <= TGI_LANES results, rounded as the policy says. */
TGI_INLINE void write_results(const norm_row *f, norm_dtypes t, int64_t j, int64_t n, norm_flags k)
{
  const vf w = vf_load_up_to(f->weight, t.weight, j, n) + f->offset;
  const vf s = load_sum(f, t.x, j, n, k.add), scaled = s * f->rstd;
  if (k.add) {
    vf_put_up_to(f->sum, t.x, j, n, s, k.stream_sum);
  }
  vf_put_up_to(f->y, t.y, j, n, (k.llama ? vf_round(t.x, scaled) : scaled) * w, k.stream_y);
}

TGI_INLINE void write_row(const norm_row *f, norm_dtypes t, norm_flags k)
{
  int64_t j = 0;
  for (; j + TGI_LANES <= f->cols; j += TGI_LANES) {
    tgi_prefetch(f->next_x, t.x, j);
    if (k.add) {
      tgi_prefetch(f->next_residual, t.x, j);
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
  float *rstd = job->rstd->data;
  norm_row f = {
      .weight = job->weight->data, .cols = job->x->shape[1], .offset = vf_set1(job->offset)};
  for (int64_t i = begin; i < end; i++) {
    const int64_t next = i + 1 < end ? i + 1 : i;
    f.x = tgi_row(job->x, i);
    f.next_x = tgi_row(job->x, next);
    f.y = tgi_row(job->y, i);
    if (k.add) {
      f.residual = tgi_row(job->residual, i);
      f.next_residual = tgi_row(job->residual, next);
      f.sum = tgi_row(job->sum, i);
    }
    const float r = 1.0f / sqrtf(sum_of_squares(&f, t.x, k.add) / (float)f.cols + job->eps);
    f.rstd = vf_set1(r);
    write_row(&f, t, k);
    if (rstd) {
      rstd[i] = r;
    }
  }
}

TGI_INLINE void forward_rows_stored(const norm_forward *job, int64_t begin, int64_t end,
                                    norm_dtypes t, bool add, bool llama)
{
  if (add && job->stream_sum) {
    forward_rows_as(job, begin, end, t, (norm_flags){add, llama, true, true});
  } else if (job->stream_y) {
    forward_rows_as(job, begin, end, t, (norm_flags){add, llama, true, false});
  } else {
    forward_rows_as(job, begin, end, t, (norm_flags){add, llama, false, false});
  }
}

TGI_INLINE void forward_rows_rounded(const norm_forward *job, int64_t begin, int64_t end,
                                     norm_dtypes t, bool add)
{
  if (job->policy == TG_RMS_NORM_LLAMA && t.x != TG_F32) {
    forward_rows_stored(job, begin, end, t, add, true);
  } else {
    forward_rows_stored(job, begin, end, t, add, false);
  }
}

/* Rows [begin, end) of a call; `add` is a constant in the caller. The contracts allow these dtypes
 * of (x, weight, y): (t, t, t), (t, f32, t), (t, f32, f32). */
TGI_INLINE void norm_forward_rows(const norm_forward *job, int64_t begin, int64_t end, bool add)
{
  const norm_dtypes t = {job->x->dtype, job->weight->dtype, job->y->dtype};
  TGI_SWITCH_FLOAT(
      t.x, X, const norm_dtypes same = {X, X, X}, wide_weight = {X, TG_F32, X},
      wide = {X, TG_F32, TG_F32};
      if (t.y != X) { forward_rows_rounded(job, begin, end, wide, add); }                  //
      else if (t.weight != X) { forward_rows_rounded(job, begin, end, wide_weight, add); } //
      else { forward_rows_rounded(job, begin, end, same, add); });
  vf_stream_fence();
}

/* Long chunks: the first row of one is not prefetched. At least 16 where there are rows for it. */
static inline int64_t norm_forward_grain(const tg_tensor *x)
{
  const int64_t row_bytes = x->shape[1] * (int64_t)tg_dtype_bytes(x->dtype);
  const int64_t rows = tgi_min_i64(kChunkBytes / row_bytes, x->shape[0] / 16);
  return rows > 1 ? rows : 1;
}

static inline void norm_forward_plan(const norm_forward *job, char *text, size_t bytes)
{
  snprintf(text, bytes, "chunks of %lld rows, %s stores", (long long)norm_forward_grain(job->x),
           job->stream_y ? "streaming" : "cached");
}

#endif
