/** LayerNorm, forward and backward. */
#ifndef TEGULA_LAYER_NORM_H
#define TEGULA_LAYER_NORM_H

#include "context.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_layer_norm_fwd_args {
  tg_tensor x, weight, bias, y, mean, rstd;
  float eps;
} tg_layer_norm_fwd_args;

/**
 * LayerNorm, forward.
 *
 *   mean[i] = mean_j(x[i,j])
 *   rstd[i] = 1 / sqrt(mean_j((x[i,j] - mean[i])^2) + eps)
 *   y[i,j]  = (x[i,j] - mean[i]) * rstd[i] * weight[j] + bias[j]
 *
 *   x       in   [rows, cols]  f32|f16|bf16               last axis contiguous
 *   weight  in   [cols]        dtype of x, or f32
 *   bias    in   [cols]        dtype of weight            optional: absent is zero
 *   y       out  [rows, cols]  dtype of x, or weight's    last axis contiguous; may alias x if
 *                                                         their dtypes are equal
 *   mean    out  [rows]        f32                        optional; tg_layer_norm_bwd needs it
 *   rstd    out  [rows]        f32                        optional; tg_layer_norm_bwd needs it
 *   eps          > 0
 *
 * Math       f32 accumulation (ref: f64). The variance is the mean of squared differences from the
 *            mean, never a difference of two means, so rows far from zero keep their precision. One
 *            rounding to y's dtype. NaN and infinity affect only their own row.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (eps; an overlap that is not listed above),
 *            UNSUPPORTED.
 * Source     Ba, Kiros & Hinton 2016, arXiv:1607.06450, eq. 4.
 */
TG_API tg_status tg_layer_norm_fwd(tg_context *ctx, const tg_layer_norm_fwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_layer_norm_fwd_workspace(const tg_context *ctx,
                                             const tg_layer_norm_fwd_args *args, size_t *bytes);

typedef struct tg_layer_norm_bwd_args {
  tg_tensor dy, x, weight, mean, rstd, dresidual, dx, dweight, dbias;
  void *workspace;
  size_t workspace_bytes;
} tg_layer_norm_bwd_args;

/**
 * LayerNorm, backward.
 *
 *   n[i,j]     = (x[i,j] - mean[i]) * rstd[i]
 *   g[i,j]     = dy[i,j] * weight[j]
 *   dx[i,j]    = rstd[i] * (g[i,j] - mean_k(g[i,k]) - n[i,j] * mean_k(g[i,k] * n[i,k]))
 *                + dresidual[i,j]
 *   dweight[j] += sum_i dy[i,j] * n[i,j]
 *   dbias[j]   += sum_i dy[i,j]
 *
 *   dy       in   [rows, cols]  dtype of x, or weight's    last axis contiguous
 *   x        in   [rows, cols]  f32|f16|bf16               last axis contiguous
 *   weight   in   [cols]        dtype of x, or f32
 *   mean     in   [rows]        f32                        from tg_layer_norm_fwd
 *   rstd     in   [rows]        f32                        from tg_layer_norm_fwd
 *   dresidual  in [rows, cols]  dtype of x                 optional: the gradient of x along the
 *                                                          residual stream
 *   dx       out  [rows, cols]  dtype of x                 optional; may alias dresidual, or dy if
 *                                                          their dtypes are equal
 *   dweight  acc  [cols]        dtype of weight, or f32    optional
 *   dbias    acc  [cols]        dtype of weight, or f32    optional
 *
 * Math       f32 throughout, one rounding per result. The partial sums of dweight and dbias depend
 *            on rows alone (CUDA: on rows and cols).
 * Workspace  tg_layer_norm_bwd_workspace; 0 without dweight and dbias.  Asynchronous; capturable;
 *            deterministic; dx is batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (an overlap that is not listed above; workspace
 *            missing or too small), UNSUPPORTED.
 * Source     derivative of the forward.
 */
TG_API tg_status tg_layer_norm_bwd(tg_context *ctx, const tg_layer_norm_bwd_args *args);

/** Workspace bytes of tg_layer_norm_bwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_layer_norm_bwd_workspace(const tg_context *ctx,
                                             const tg_layer_norm_bwd_args *args, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
