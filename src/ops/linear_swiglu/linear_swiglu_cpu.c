/* Two linear layers and SwiGLU on the CPU.
 *
 * Method     The steps of linear_swiglu_steps.h, which are kernels of other ops.
 * Work       That of these kernels.
 * Bound      The products: arithmetic, or memory for few rows.
 */
#include "ops/linear_swiglu/linear_swiglu_steps.h"

size_t TGI_WORKSPACE(linear_swiglu_fwd)(const tg_context *ctx, const tg_linear_swiglu_fwd_args *a)
{
  return linear_swiglu_bytes(ctx, a);
}

tg_status TGI_KERNEL(linear_swiglu_fwd)(const tg_context *ctx, const tg_linear_swiglu_fwd_args *a)
{
  return linear_swiglu_in_steps(ctx, a);
}

void TGI_PLAN(linear_swiglu_fwd)(const tg_context *ctx, const tg_linear_swiglu_fwd_args *a,
                                 char *text, size_t bytes)
{
  linear_swiglu_plan(ctx, a, text, bytes);
}
