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
 * -infinity gives 0 (a masked score). A row without a finite largest element has no softmax: one
 * that is all -infinity, or that has +infinity or NaN in it, becomes NaN as a whole, as in PyTorch.
 *
 * Math       f32, one rounding per result; sums of 2048 elements each are added in f64. CUDA: of at
 *            most 32 in f32 rows; 16-bit rows are summed in f32, their results are within 2^-17
 *            before the rounding.
 * Workspace  tg_softmax_fwd_workspace: two rows of f32 and a little for each thread; CUDA: none.
 *            Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (scale, y overlaps x without being it, workspace
 *            missing or too small), UNSUPPORTED.
 * Source     Bridle 1990, "Probabilistic interpretation of feedforward classification network
 *            outputs"; the largest element is subtracted for range.
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
 * Math       f32, one rounding per result; sums of 2048 (CUDA: at most 64) elements each are added
 *            in f64.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (scale, dx overlaps an input without being dy),
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
