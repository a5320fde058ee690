/** Residual addition and RMSNorm in one pass, forward and backward. */
#ifndef TEGULA_ADD_RMS_NORM_H
#define TEGULA_ADD_RMS_NORM_H

#include "context.h"
#include "rms_norm.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_add_rms_norm_fwd_args {
  tg_tensor x, residual, weight, sum, y, rstd;
  float eps;
  float weight_offset;
  tg_rms_norm_policy policy;
} tg_add_rms_norm_fwd_args;

/**
 * Residual addition and RMSNorm, forward: the step between the halves of a pre-norm layer.
 *
 *   sum[i,j] = round_x(residual[i,j] + x[i,j])
 *   rstd[i]  = 1 / sqrt(mean_j(sum[i,j]^2) + eps)
 *   y[i,j]   = sum[i,j] * rstd[i] * (weight_offset + weight[j])
 *
 *   x         in   [rows, cols]  f32|f16|bf16               last axis contiguous
 *   residual  in   [rows, cols]  dtype of x                 last axis contiguous
 *   weight    in   [cols]        dtype of x, or f32
 *   sum       out  [rows, cols]  dtype of x                 may alias residual or x
 *   y         out  [rows, cols]  dtype of x, or weight's    last axis contiguous; may alias x or
 *                                                           residual if their dtypes are equal
 *   rstd      out  [rows]        f32                        optional; tg_add_rms_norm_bwd needs it
 *   eps            > 0
 *   weight_offset  finite; 0, or 1 where a model stores weight - 1
 *   policy         required; that of tg_rms_norm_fwd
 *
 * Math       Bit-identical to an addition in the dtype of x followed by tg_rms_norm_fwd of the
 *            rounded sum: f32 accumulation (ref: f64), rounding as `policy` says. NaN and infinity
 *            affect only their own row.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (eps, weight_offset, policy; an overlap that is not
 *            listed above), UNSUPPORTED.
 * Source     Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4.
 */
TG_API tg_status tg_add_rms_norm_fwd(tg_context *ctx, const tg_add_rms_norm_fwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_add_rms_norm_fwd_workspace(const tg_context *ctx,
                                               const tg_add_rms_norm_fwd_args *args, size_t *bytes);

typedef struct tg_add_rms_norm_bwd_args {
  tg_tensor dy, dsum, sum, weight, rstd, dx, dweight;
  float weight_offset;
  void *workspace;
  size_t workspace_bytes;
} tg_add_rms_norm_bwd_args;

/**
 * Residual addition and RMSNorm, backward.
 *
 *   n[i,j]     = sum[i,j] * rstd[i]
 *   g[i,j]     = dy[i,j] * (weight_offset + weight[j])
 *   dx[i,j]    = rstd[i] * (g[i,j] - n[i,j] * mean_k(g[i,k] * n[i,k])) + dsum[i,j]
 *   dweight[j] += sum_i dy[i,j] * n[i,j]
 *
 * dx is the gradient of x and also that of residual.
 *
 *   dy       in   [rows, cols]  dtype of sum, or weight's  last axis contiguous
 *   dsum     in   [rows, cols]  dtype of sum               optional: the gradient of sum along the
 *                                                          residual stream
 *   sum      in   [rows, cols]  f32|f16|bf16               last axis contiguous; from the forward
 *   weight   in   [cols]        dtype of sum, or f32
 *   rstd     in   [rows]        f32                        from tg_add_rms_norm_fwd
 *   dx       out  [rows, cols]  dtype of sum               optional; may alias dsum, or dy if their
 *                                                          dtypes are equal
 *   dweight  acc  [cols]        dtype of weight, or f32    optional
 *   weight_offset  finite; that of the forward
 *
 * Math       f32 throughout, one rounding per result. Both policies have this gradient. The partial
 *            sums of dweight depend on rows alone (CUDA: on rows and cols).
 * Workspace  tg_add_rms_norm_bwd_workspace; 0 without dweight.  Asynchronous; capturable;
 *            deterministic; dx is batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (weight_offset; an overlap that is not listed
 *            above; workspace missing or too small), UNSUPPORTED.
 * Source     derivative of the forward.
 */
TG_API tg_status tg_add_rms_norm_bwd(tg_context *ctx, const tg_add_rms_norm_bwd_args *args);

/** Workspace bytes of tg_add_rms_norm_bwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_add_rms_norm_bwd_workspace(const tg_context *ctx,
                                               const tg_add_rms_norm_bwd_args *args, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
