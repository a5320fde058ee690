/**
 * RMSNorm, reference, for the ops that contain one. Every rounding of the contract passes through
 * tgi_round: with f64 tensors this is the oracle, with 16-bit tensors the naive result that rounds
 * after each step.
 */
#ifndef TGI_OPS_RMS_NORM_REFERENCE_H
#define TGI_OPS_RMS_NORM_REFERENCE_H

#include "core/tensor_view.h"
#include "core/values/half.h"
#include "tegula/rms_norm.h"

#include <math.h>

static inline void norm_reference_forward(const tg_rms_norm_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
  const tg_dtype xt = a->x.dtype, wt = a->weight.dtype, yt = a->y.dtype;
  const tg_dtype math = xt == TG_F64 ? TG_F64 : TG_F32;
  for (int64_t i = 0; i < rows; i++) {
    const void *x = tgi_row(&a->x, i);
    void *y = tgi_row(&a->y, i);
    double sum = 0;
    for (int64_t j = 0; j < cols; j++) {
      sum += tgi_load(x, xt, j) * tgi_load(x, xt, j);
    }
    const double rstd = tgi_round(math, 1 / sqrt(sum / (double)cols + (double)a->eps));
    for (int64_t j = 0; j < cols; j++) {
      const double w = tgi_round(math, tgi_load(a->weight.data, wt, j) + (double)a->weight_offset);
      double n = tgi_round(math, tgi_load(x, xt, j) * rstd);
      if (a->policy == TG_RMS_NORM_LLAMA) {
        n = tgi_round(xt, n);
      }
      tgi_store(y, yt, j, tgi_round(math, n * w));
    }
    if (tgi_present(&a->rstd)) {
      tgi_store(a->rstd.data, a->rstd.dtype, i, rstd);
    }
  }
}

/* n[i,j] and g[i,j] of the contract. */
static inline double normalised(const tg_rms_norm_bwd_args *a, int64_t i, int64_t j)
{
  const double rstd = tgi_load(a->rstd.data, a->rstd.dtype, i);
  return tgi_round(a->x.dtype, tgi_load(tgi_row(&a->x, i), a->x.dtype, j) * rstd);
}

static inline double weighted(const tg_rms_norm_bwd_args *a, int64_t i, int64_t j)
{
  const double w = tgi_load(a->weight.data, a->weight.dtype, j) + (double)a->weight_offset;
  return tgi_round(a->x.dtype, tgi_load(tgi_row(&a->dy, i), a->dy.dtype, j) * w);
}

static inline void write_dx_row(const tg_rms_norm_bwd_args *a, const tg_tensor *past, int64_t i)
{
  const int64_t cols = a->x.shape[1];
  const tg_dtype t = a->x.dtype;
  const double rstd = tgi_load(a->rstd.data, a->rstd.dtype, i);
  double dot = 0;
  for (int64_t j = 0; j < cols; j++) {
    dot += weighted(a, i, j) * normalised(a, i, j);
  }
  const double mean = dot / (double)cols;
  for (int64_t j = 0; j < cols; j++) {
    const double inner = tgi_round(t, weighted(a, i, j) - normalised(a, i, j) * mean);
    const double dx = rstd * inner;
    tgi_store(tgi_row(&a->dx, i), t, j,
              past ? tgi_load(tgi_row(past, i), t, j) + tgi_round(t, dx) : dx);
  }
}

/* past: the gradient of x along the residual stream; NULL: none. */
static inline void norm_reference_backward(const tg_rms_norm_bwd_args *a, const tg_tensor *past)
{
  const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
  for (int64_t j = 0; j < cols && tgi_present(&a->dweight); j++) {
    double sum = tgi_load(a->dweight.data, a->dweight.dtype, j);
    for (int64_t i = 0; i < rows; i++) {
      const double dy = tgi_load(tgi_row(&a->dy, i), a->dy.dtype, j);
      sum += tgi_round(a->x.dtype, dy * normalised(a, i, j));
    }
    tgi_store(a->dweight.data, a->dweight.dtype, j, sum);
  }
  /* After dweight, since dx may alias dy or past. */
  for (int64_t i = 0; i < rows && tgi_present(&a->dx); i++) {
    write_dx_row(a, past, i);
  }
}

#endif
