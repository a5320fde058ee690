/** RMSNorm gated by SiLU, in one pass, forward and backward. */
#ifndef TEGULA_RMS_NORM_SWIGLU_H
#define TEGULA_RMS_NORM_SWIGLU_H

#include "context.h"
#include "rounding.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_rms_norm_swiglu_fwd_args {
  tg_tensor x, gate, weight, y, rstd;
  float eps;
  tg_rounding rounding;
} tg_rms_norm_swiglu_fwd_args;

/**
 * RMSNorm gated by SiLU, forward.
 *
 *   rstd[i]   = 1 / sqrt(mean_j(x[i,j]^2) + eps)
 *   m[i,j]    = x[i,j] * rstd[i] * weight[j]
 *   y[i,j]    = m[i,j] * silu(gate[i,j]),  silu(v) = v / (1 + exp(-v))
 *
 *   x        in   [rows, cols]  f32|f16|bf16        last axis contiguous
 *   gate     in   [rows, cols]  dtype of x          last axis contiguous
 *   weight   in   [cols]        dtype of x, or f32
 *   y        out  [rows, cols]  dtype of x          last axis contiguous; may alias x or gate
 *   rstd     out  [rows]        f32                 optional; tg_rms_norm_swiglu_bwd needs it
 *   eps           > 0
 *   rounding      required. HF, as in Qwen3NextRMSNormGated: n = round_x(x * rstd), then
 *                 m = n * weight rounded to weight's dtype, then y with silu in f32.
 *                 ONCE: only y is rounded
 *
 * Math       f32 accumulation (ref: f64). Every step is an f32 operation, then rounded as
 *            `rounding` says. NaN and infinity affect only their own row. CUDA: silu of 16-bit
 *            tensors is within 2^-17 before it is rounded.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (eps, rounding; an overlap that is not listed
 *            above), UNSUPPORTED.
 * Source     Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4 (RMSNorm); Elfwing et al. 2017,
 *            arXiv:1702.03118 (SiLU).
 */
TG_API tg_status tg_rms_norm_swiglu_fwd(tg_context *ctx, const tg_rms_norm_swiglu_fwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_rms_norm_swiglu_fwd_workspace(const tg_context *ctx,
                                                  const tg_rms_norm_swiglu_fwd_args *args,
                                                  size_t *bytes);

typedef struct tg_rms_norm_swiglu_bwd_args {
  tg_tensor dy, x, gate, weight, rstd, dx, dgate, dweight;
  void *workspace;
  size_t workspace_bytes;
} tg_rms_norm_swiglu_bwd_args;

/**
 * RMSNorm gated by SiLU, backward.
 *
 *   n[i,j]      = x[i,j] * rstd[i]
 *   u[i,j]      = dy[i,j] * silu(gate[i,j])
 *   g[i,j]      = u[i,j] * weight[j]
 *   dx[i,j]     = rstd[i] * (g[i,j] - n[i,j] * mean_k(g[i,k] * n[i,k]))
 *   dgate[i,j]  = dy[i,j] * n[i,j] * weight[j] * silu'(gate[i,j]),
 *                 silu'(v) = s (1 + v (1 - s)),  s = 1 / (1 + exp(-v))
 *   dweight[j] += sum_i u[i,j] * n[i,j]
 *
 *   dy       in   [rows, cols]  dtype of x             last axis contiguous
 *   x        in   [rows, cols]  f32|f16|bf16           last axis contiguous
 *   gate     in   [rows, cols]  dtype of x             last axis contiguous
 *   weight   in   [cols]        dtype of x, or f32
 *   rstd     in   [rows]        f32                    from tg_rms_norm_swiglu_fwd
 *   dx       out  [rows, cols]  dtype of x             optional; may alias dy or gate
 *   dgate    out  [rows, cols]  dtype of x             optional; may alias gate or dy
 *   dweight  acc  [cols]        dtype of weight, or f32  optional
 *
 * Math       f32 throughout, one rounding per result. Both roundings have this gradient. silu is
 *            that of the forward; where it is 0 in f32 (gate below -88.7), silu' is exactly 0. The
 *            partial sums of dweight depend on rows alone (CUDA: on rows and cols).
 * Workspace  tg_rms_norm_swiglu_bwd_workspace; 0 without dweight.  Asynchronous; capturable;
 *            deterministic; dx and dgate are batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (an overlap that is not listed above; workspace
 *            missing or too small), UNSUPPORTED.
 * Source     derivative of the forward.
 */
TG_API tg_status tg_rms_norm_swiglu_bwd(tg_context *ctx, const tg_rms_norm_swiglu_bwd_args *args);

/** Workspace bytes of tg_rms_norm_swiglu_bwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_rms_norm_swiglu_bwd_workspace(const tg_context *ctx,
                                                  const tg_rms_norm_swiglu_bwd_args *args,
                                                  size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
