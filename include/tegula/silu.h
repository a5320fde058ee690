/** SiLU (swish), forward and backward. */
#ifndef TEGULA_SILU_H
#define TEGULA_SILU_H

#include "context.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_silu_fwd_args {
  tg_tensor x, y;
} tg_silu_fwd_args;

/**
 * SiLU, forward.
 *
 *   y = x * s = x / (1 + exp(-x)),   s = 1 / (1 + exp(-x))
 *
 *   x    in   [rows, cols]  f32|f16|bf16    last axis contiguous
 *   y    out  [rows, cols]  dtype of x      last axis contiguous; may alias x
 *
 * Math       f32, one rounding to the dtype; within 2.5 f32 ulp of y, 3 on processors without fused
 *            multiply-add (ref: f64; CUDA, 16-bit tensors: within 2^-17). Below -88.7, where |y| <
 *            2^-121, y is -0 (CUDA, 16-bit tensors: below -87.3). Infinity gives the limits,
 *            infinity and 0. NaN gives NaN.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (an overlap that is not listed above), UNSUPPORTED.
 * Source     Hendrycks & Gimpel 2016, arXiv:1606.08415, section 2; Elfwing et al. 2017,
 *            arXiv:1702.03118.
 */
TG_API tg_status tg_silu_fwd(tg_context *ctx, const tg_silu_fwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_silu_fwd_workspace(const tg_context *ctx, const tg_silu_fwd_args *args,
                                       size_t *bytes);

typedef struct tg_silu_bwd_args {
  tg_tensor dy, x, dx;
} tg_silu_bwd_args;

/**
 * SiLU, backward.
 *
 *   dx = dy * (s + x * s * (1 - s))
 *
 *   dy   in   [rows, cols]  dtype of x      last axis contiguous
 *   x    in   [rows, cols]  f32|f16|bf16    last axis contiguous
 *   dx   out  [rows, cols]  dtype of x      last axis contiguous; may alias dy or x
 *
 * Math       f32, one rounding to the dtype; the factor of dy is within 2^-22 (ref: f64; CUDA,
 *            16-bit tensors: 2^-17). For infinite x the factor is its limit, 1 or 0. For each x
 *            below -1 at which tg_silu_fwd gives 0 it is exactly 0.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (an overlap that is not listed above), UNSUPPORTED.
 * Source     derivative of the forward.
 */
TG_API tg_status tg_silu_bwd(tg_context *ctx, const tg_silu_bwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_silu_bwd_workspace(const tg_context *ctx, const tg_silu_bwd_args *args,
                                       size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
