/** Softmax of rows, forward and backward. */
#ifndef TEGULA_SOFTMAX_H
#define TEGULA_SOFTMAX_H

#include "context.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_softmax_fwd_args {
  tg_tensor x, y;
  float scale;
  void *workspace;
  size_t workspace_bytes;
} tg_softmax_fwd_args;

/**
 * Softmax, forward.
 *
 *   z[i,j] = scale * (x[i,j] - max_k(x[i,k]))
 *   y[i,j] = exp(z[i,j]) / sum_k(exp(z[i,k]))
 *
 *   x      in   [rows, cols]  f32|f16|bf16  last axis contiguous; any width
 *   y      out  [rows, cols]  dtype of x    last axis contiguous; may alias x
 *   scale       2^-100 or more, finite; 1 for the plain softmax
 *
 * -infinity (a masked score) gives 0. As in PyTorch, a row becomes NaN as a whole if all its
 * elements are -infinity, or if one is +infinity or NaN.
 *
 * Math       f32, one rounding per result (ref: f64). The row sum is an f64 sum of f32 sums of 2048
 *            elements each. CUDA: of at most 32 elements each for f32 rows; 16-bit rows are summed
 *            in f32, with results within 2^-17 before rounding.
 * Workspace  tg_softmax_fwd_workspace: two rows of f32 and a little more for each thread; CUDA:
 *            none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (scale; an overlap that is not listed above;
 *            workspace missing or too small), UNSUPPORTED.
 * Source     Bridle 1990, "Probabilistic interpretation of feedforward classification network
 *            outputs". The largest element is subtracted to keep
 *            exp in range.
 */
TG_API tg_status tg_softmax_fwd(tg_context *ctx, const tg_softmax_fwd_args *args);

/** Workspace bytes of tg_softmax_fwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_softmax_fwd_workspace(const tg_context *ctx, const tg_softmax_fwd_args *args,
                                          size_t *bytes);

typedef struct tg_softmax_bwd_args {
  tg_tensor dy, y, dx;
  float scale;
} tg_softmax_bwd_args;

/**
 * Softmax, backward.
 *
 *   dx[i,j] = scale * y[i,j] * (dy[i,j] - sum_k(dy[i,k] * y[i,k]))
 *
 *   dy     in   [rows, cols]  dtype of y    last axis contiguous
 *   y      in   [rows, cols]  f32|f16|bf16  last axis contiguous; from tg_softmax_fwd
 *   dx     out  [rows, cols]  dtype of y    last axis contiguous; may alias dy
 *   scale       2^-100 or more, finite; that of the forward
 *
 * Math       f32, one rounding per result (ref: f64). The row sum is an f64 sum of f32 sums of 2048
 *            elements each (CUDA: of at most 64).
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (scale; an overlap that is not listed above),
 *            UNSUPPORTED.
 * Source     derivative of the forward.
 */
TG_API tg_status tg_softmax_bwd(tg_context *ctx, const tg_softmax_bwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_softmax_bwd_workspace(const tg_context *ctx, const tg_softmax_bwd_args *args,
                                          size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
