/* Two linear layers and SwiGLU on CUDA.
 *
 * Method     The steps of linear_swiglu_steps.h, which are kernels of other ops.
 * Work       That of these kernels.
 * Bound      The products: f32 arithmetic, or tensor cores.
 */
#include "ops/kernels.cuh"

extern "C" {
#include "ops/linear_swiglu/linear_swiglu_steps.h"
}

extern "C" size_t TGI_WORKSPACE(linear_swiglu_fwd)(const tg_context *ctx,
                                                   const tg_linear_swiglu_fwd_args *a)
{
  return linear_swiglu_bytes(ctx, a);
}

extern "C" tg_status TGI_KERNEL(linear_swiglu_fwd)(const tg_context *ctx,
                                                   const tg_linear_swiglu_fwd_args *a)
{
  return linear_swiglu_in_steps(ctx, a);
}

extern "C" void TGI_PLAN(linear_swiglu_fwd)(const tg_context *ctx,
                                            const tg_linear_swiglu_fwd_args *a, char *text,
                                            size_t bytes)
{
  linear_swiglu_plan(ctx, a, text, bytes);
}
