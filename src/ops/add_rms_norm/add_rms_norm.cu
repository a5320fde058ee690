/* Residual addition and RMSNorm on CUDA, forward: entry points and plan. rms_norm_forward.cuh holds
 * the kernels, with an addition before the norm. */
#include "ops/kernels.cuh"
#include "ops/shared/norms/rms_norm_forward.cuh"

namespace
{

norm_forward plan_fwd(const tg_add_rms_norm_fwd_args *a)
{
  norm_forward f = plan_forward(&a->x, &a->residual, &a->weight, &a->sum, &a->y, &a->rstd);
  f.eps = a->eps;
  f.offset = a->weight_offset;
  f.rounds = a->policy == TG_RMS_NORM_LLAMA;
  return f;
}

} // namespace

extern "C" tg_status TGI_KERNEL(add_rms_norm_fwd)(const tg_context *ctx,
                                                  const tg_add_rms_norm_fwd_args *a)
{
  return run_forward<kNormOfSum>(ctx, plan_fwd(a), &a->x, &a->weight, &a->y);
}

extern "C" void TGI_PLAN(add_rms_norm_fwd)(const tg_context *, const tg_add_rms_norm_fwd_args *a,
                                           char *text, size_t bytes)
{
  const norm_forward f = plan_fwd(a);
  explain_rows(f.rows, f.whole, f.layout, text, bytes);
}
