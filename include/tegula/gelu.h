/** GELU, forward and backward. */
#ifndef TEGULA_GELU_H
#define TEGULA_GELU_H

#include "context.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tg_gelu_approximation {
  TG_GELU_TANH = 1, /* GPT-2 ("gelu_new"), Gemma */
  TG_GELU_ERF = 2,  /* the exact form: BERT */
} tg_gelu_approximation;

typedef struct tg_gelu_fwd_args {
  tg_tensor x, y;
  tg_gelu_approximation approximation;
} tg_gelu_fwd_args;

/**
 * GELU, forward.
 *
 *   tanh  u = sqrt(2 / pi) * (x + 0.044715 * x^3)
 *         y = 0.5 * x * (1 + tanh(u))
 *   erf   y = 0.5 * x * (1 + erf(x / sqrt(2)))
 *
 *   x    in   [rows, cols]  f32|f16|bf16    last axis contiguous
 *   y    out  [rows, cols]  dtype of x      last axis contiguous; may alias x
 *   approximation  required
 *
 * Math       f32, one rounding to the dtype; within 11 f32 ulp of max(|y|, 2^-10), 18 on processors
 *            without fused multiply-add (ref: f64; CUDA, 16-bit tensors: within 2^-17). Infinity
 *            gives the limits, infinity and 0. NaN gives NaN.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (approximation; an overlap that is not listed
 *            above), UNSUPPORTED.
 * Source     Hendrycks & Gimpel 2016, arXiv:1606.08415, section 2.
 */
TG_API tg_status tg_gelu_fwd(tg_context *ctx, const tg_gelu_fwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_gelu_fwd_workspace(const tg_context *ctx, const tg_gelu_fwd_args *args,
                                       size_t *bytes);

typedef struct tg_gelu_bwd_args {
  tg_tensor dy, x, dx;
  tg_gelu_approximation approximation;
} tg_gelu_bwd_args;

/**
 * GELU, backward.
 *
 *   tanh  t  = tanh(u),  u' = sqrt(2 / pi) * (1 + 3 * 0.044715 * x^2)
 *         dx = dy * (0.5 * (1 + t) + 0.5 * x * (1 - t^2) * u')
 *   erf   dx = dy * (0.5 * (1 + erf(x / sqrt(2))) + x * exp(-x^2 / 2) / sqrt(2 pi))
 *
 *   dy   in   [rows, cols]  dtype of x      last axis contiguous
 *   x    in   [rows, cols]  f32|f16|bf16    last axis contiguous
 *   dx   out  [rows, cols]  dtype of x      last axis contiguous; may alias dy
 *   approximation  that of the forward
 *
 * Math       f32, one rounding to the dtype; the factor of dy is within 2^-22 (ref: f64; CUDA,
 *            16-bit tensors: 2^-17). For infinite x the factor is its limit, 1 or 0. For each x
 *            below -1 at which tg_gelu_fwd gives 0 it is exactly 0.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (approximation; an overlap that is not listed
 *            above), UNSUPPORTED.
 * Source     derivative of the forward.
 */
TG_API tg_status tg_gelu_bwd(tg_context *ctx, const tg_gelu_bwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_gelu_bwd_workspace(const tg_context *ctx, const tg_gelu_bwd_args *args,
                                       size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
