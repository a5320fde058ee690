/** AdamW: one optimiser step over a list of tensors. */
#ifndef TEGULA_ADAMW_H
#define TEGULA_ADAMW_H

#include "context.h"
#include "tensor.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_adamw_step_args {
  const tg_tensor *params, *grads, *exp_avg, *exp_avg_sq, *master;
  int64_t num_tensors;
  tg_tensor clip;
  int64_t step;
  double lr, beta1, beta2, eps, weight_decay;
  double grad_scale;
  bool has_grad_scale;
  bool allow_zero;
} tg_adamw_step_args;

/**
 * AdamW, one step. The formulas apply to each element of every tensor; w is master if given, else
 * params.
 *
 *   g          = grads * (has_grad_scale ? grad_scale : 1) * (clip given ? clip[0] : 1)
 *   w          = w * (1 - lr * weight_decay)
 *   exp_avg    = exp_avg + (1 - beta1) * (g - exp_avg)
 *   exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g * g
 *   w          = w - lr / (1 - beta1^step) * exp_avg
 *                    / (sqrt(exp_avg_sq) / sqrt(1 - beta2^step) + eps)
 *   params     = w rounded to its dtype
 *
 * One call updates one parameter group: the tensors that share the scalars. Parameters without
 * weight decay (biases, norms) belong in a second call with weight_decay 0.
 *
 *   params      inout  list of num_tensors, any shape, contiguous  f32|f16|bf16, each its own
 *   grads       in     list, shape of params                       f32|f16|bf16
 *   exp_avg     inout  list, shape of params                       f32|f16|bf16; zero at first
 *   exp_avg_sq  inout  list, shape of params                       f32|f16|bf16; zero at first
 *   master      inout  list, shape of params                       f32, optional: the weights in
 *                                                                  f32; params are then not read
 *   clip        in     [1]                                         f32, optional: factor in device
 *                                                                  memory, from tg_global_norm_fwd
 *   step          >= 1; number of this step, 1 in the first call
 *   lr            >= 0
 *   beta1, beta2  > 0 and < 1; with allow_zero >= 0
 *   eps           > 0; with allow_zero >= 0
 *   weight_decay  >= 0
 *   grad_scale    finite; with has_grad_scale. -1 maximises
 *   allow_zero    true: beta1, beta2 and eps may be 0. false: 0 is a value that was left out
 *
 * Math       Element-wise f32 in the order above, which is PyTorch's (ref: f64). Each stored value
 *            is rounded once. Factors of scalars alone are computed in f64 and rounded to f32. The
 *            scalars are double because 1 - beta2 from an f32 beta2 of 0.999 is off by 1e-5.
 *            Without master, an update below half a unit in the last place of a 16-bit param is
 *            lost. A 16-bit exp_avg_sq is coarse: f16 underflows for gradients below about 1e-2,
 *            and in bf16 the decay by a beta2 above 0.998 rounds away.
 *            With a clip that is negative, infinite or NaN the call fails and writes nothing (CUDA:
 *            tg_context_check returns the error). Without clip, a gradient that is not finite
 *            affects only its own element of params and state. With eps 0, an element whose
 *            gradients have all been 0 becomes NaN (0 / 0), as in PyTorch.
 * Workspace  none.  Asynchronous; capturable; deterministic.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (a scalar out of range; clip[0] as above;
 *            num_tensors < 0; tensors of one index overlap), UNSUPPORTED. The caller must list no
 *            tensor twice; this is not checked.
 * Source     Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2; Kingma & Ba 2015,
 *            arXiv:1412.6980.
 */
TG_API tg_status tg_adamw_step(tg_context *ctx, const tg_adamw_step_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_adamw_step_workspace(const tg_context *ctx, const tg_adamw_step_args *args,
                                         size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
