/* Residual addition and RMSNorm on CUDA, backward: entry points and plan. rms_norm_backward.cuh
 * holds the kernels, which add the residual stream's gradient dsum to dx. */
#include "ops/kernels.cuh"
#include "ops/shared/norms/rms_norm_backward.cuh"

namespace
{

const tg_tensor kAbsent = {};

gradient_views views_of(const tg_add_rms_norm_bwd_args *a)
{
  return {&a->dy, &a->sum, &kAbsent, &a->weight, &a->rstd, &a->dsum, &a->dx, &kAbsent, &a->dweight};
}

norm_backward plan_bwd(const tg_context *ctx, const tg_add_rms_norm_bwd_args *a)
{
  return plan_backward(ctx, views_of(a), a->weight_offset, a->workspace);
}

} // namespace

extern "C" size_t TGI_WORKSPACE(add_rms_norm_bwd)(const tg_context *,
                                                  const tg_add_rms_norm_bwd_args *a)
{
  return backward_bytes(&a->sum, &kAbsent, &a->dweight);
}

extern "C" tg_status TGI_KERNEL(add_rms_norm_bwd)(const tg_context *ctx,
                                                  const tg_add_rms_norm_bwd_args *a)
{
  return run_backward<false>(ctx, plan_bwd(ctx, a), views_of(a));
}

extern "C" void TGI_PLAN(add_rms_norm_bwd)(const tg_context *ctx, const tg_add_rms_norm_bwd_args *a,
                                           char *text, size_t bytes)
{
  explain_backward(plan_bwd(ctx, a), text, bytes);
}
