/** The L2 norm over a list of tensors, and the factor that clips it. */
#ifndef TEGULA_GLOBAL_NORM_H
#define TEGULA_GLOBAL_NORM_H

#include "context.h"
#include "tensor.h"
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_global_norm_fwd_args {
  const tg_tensor *tensors;
  int64_t num_tensors;
  tg_tensor norm, clip;
  float max_norm;
  void *workspace;
  size_t workspace_bytes;
} tg_global_norm_fwd_args;

/**
 * L2 norm over all elements of a list of tensors, and the factor that clips it to max_norm.
 *
 *   norm = sqrt(sum over every tensor t and element k of tensors[t][k]^2)
 *   clip = min(1, max_norm / (norm + 1e-6))          NaN if norm is infinite or NaN
 *
 *   tensors  in   list of num_tensors, any shape, contiguous   f32|f16|bf16, each its own
 *   norm     out  [1]                                          f32
 *   clip     out  [1]                                          f32   optional
 *   max_norm    > 0 with clip; finite
 *
 * Math       f32 sums of squares over pieces of 4096 elements (CUDA: of 16 bytes), and f64 sums of
 *            these (ref: f64). The pieces depend on the tensors' sizes alone. If the squares of a
 *            piece leave the range of f32, the piece is summed again with scaled values (CUDA: in
 *            f64), so the norm is right wherever it is an f32.
 *            An infinite or NaN element makes norm infinite or NaN; the call succeeds and clip is
 *            NaN. tg_adamw_step refuses a NaN clip, so bad gradients do not change the weights.
 *            (PyTorch's clip factor is 0 for an infinite norm, which turns infinite gradients into
 *            NaN.) An empty list has norm 0 and clip 1.
 * Workspace  tg_global_norm_fwd_workspace: for each tensor 8 bytes per 65536 elements, rounded up.
 *            Asynchronous; capturable; deterministic.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (max_norm; num_tensors < 0; an overlap; workspace
 *            missing or too small), UNSUPPORTED.
 * Source     Pascanu et al. 2013, arXiv:1211.5063, section 3.2; the 1e-6 is PyTorch's.
 */
TG_API tg_status tg_global_norm_fwd(tg_context *ctx, const tg_global_norm_fwd_args *args);

/** Workspace bytes of tg_global_norm_fwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_global_norm_fwd_workspace(const tg_context *ctx,
                                              const tg_global_norm_fwd_args *args, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
