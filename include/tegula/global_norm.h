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
 * Global norm.
 *
 *   norm = sqrt(sum over every tensor t and element k of tensors[t][k]^2)
 *   clip = min(1, max_norm / (norm + 1e-6))          NaN if norm is infinite or NaN
 *
 *   tensors  in   list of num_tensors, any shape, contiguous   f32|f16|bf16, each its own
 *   norm     out  [1]                                          f32
 *   clip     out  [1]                                          f32   optional
 *   max_norm    > 0 with clip; finite
 *
 * Math       f32 sums of squares over pieces of 4096 elements (CUDA: of 16 bytes), f64 from there
 *            on (ref: f64). The pieces are cut by the tensors' sizes alone. A piece whose squares
 *            leave the range of f32 is added again with its values scaled (CUDA: in f64), so the
 *            norm is right wherever it is an f32.
 *            An infinite or NaN element makes norm infinite or NaN: the call succeeds, and
 *            tg_adamw_step refuses the NaN clip, so bad gradients reach no weight. (PyTorch's clip
 *            factor is 0 for an infinite norm, which turns the infinite gradients into NaN.) An
 *            empty list has norm 0 and clip 1.
 * Workspace  tg_global_norm_fwd_workspace: 8 bytes for every 65536 elements or part of a tensor.
 *            Asynchronous; capturable; deterministic.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (max_norm; num_tensors < 0; overlap; workspace
 *            missing or too small), UNSUPPORTED.
 * Source     Pascanu et al. 2013, arXiv:1211.5063, section 3.2; 1e-6 as in PyTorch.
 */
TG_API tg_status tg_global_norm_fwd(tg_context *ctx, const tg_global_norm_fwd_args *args);

/** Workspace bytes of tg_global_norm_fwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_global_norm_fwd_workspace(const tg_context *ctx,
                                              const tg_global_norm_fwd_args *args, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
