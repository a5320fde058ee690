/* RMSNorm gated by SiLU on CUDA, forward: entry points and plan. rms_norm_forward.cuh holds the
 * kernels, with a gate after the norm. */
#include "ops/kernels.cuh"
#include "ops/shared/norms/rms_norm_forward.cuh"

namespace
{

norm_forward plan_fwd(const tg_rms_norm_swiglu_fwd_args *a)
{
  norm_forward f = plan_forward(&a->x, &a->gate, &a->weight, nullptr, &a->y, &a->rstd);
  f.eps = a->eps;
  f.rounds = a->rounding == TG_ROUNDING_HF;
  return f;
}

} // namespace

extern "C" tg_status TGI_KERNEL(rms_norm_swiglu_fwd)(const tg_context *ctx,
                                                     const tg_rms_norm_swiglu_fwd_args *a)
{
  return run_forward<kNormGated>(ctx, plan_fwd(a), &a->x, &a->weight, &a->y);
}

extern "C" void TGI_PLAN(rms_norm_swiglu_fwd)(const tg_context *,
                                              const tg_rms_norm_swiglu_fwd_args *a, char *text,
                                              size_t bytes)
{
  const norm_forward f = plan_fwd(a);
  explain_rows(f.rows, f.whole, f.layout, text, bytes);
}
