/* RMSNorm gated by SiLU on CUDA, backward: entry points and plan. rms_norm_backward.cuh holds the
 * kernels, which also compute dgate. */
#include "ops/kernels.cuh"
#include "ops/shared/norms/rms_norm_backward.cuh"

namespace
{

const tg_tensor kAbsent = {};

gradient_views views_of(const tg_rms_norm_swiglu_bwd_args *a)
{
  return {&a->dy, &a->x, &a->gate, &a->weight, &a->rstd, &kAbsent, &a->dx, &a->dgate, &a->dweight};
}

norm_backward plan_bwd(const tg_context *ctx, const tg_rms_norm_swiglu_bwd_args *a)
{
  return plan_backward(ctx, views_of(a), 0, a->workspace);
}

} // namespace

extern "C" size_t TGI_WORKSPACE(rms_norm_swiglu_bwd)(const tg_context *,
                                                     const tg_rms_norm_swiglu_bwd_args *a)
{
  return backward_bytes(&a->x, &a->gate, &a->dweight);
}

extern "C" tg_status TGI_KERNEL(rms_norm_swiglu_bwd)(const tg_context *ctx,
                                                     const tg_rms_norm_swiglu_bwd_args *a)
{
  return run_backward<true>(ctx, plan_bwd(ctx, a), views_of(a));
}

extern "C" void TGI_PLAN(rms_norm_swiglu_bwd)(const tg_context *ctx,
                                              const tg_rms_norm_swiglu_bwd_args *a, char *text,
                                              size_t bytes)
{
  explain_backward(plan_bwd(ctx, a), text, bytes);
}
