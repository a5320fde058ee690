/* RMSNorm forward on CUDA: entry points and plan. rms_norm_forward.cuh holds the kernels. */
#include "ops/kernels.cuh"
#include "ops/shared/norms/rms_norm_forward.cuh"

namespace
{

norm_forward plan_fwd(const tg_rms_norm_fwd_args *a)
{
  norm_forward f = plan_forward(&a->x, nullptr, &a->weight, nullptr, &a->y, &a->rstd);
  f.eps = a->eps;
  f.offset = a->weight_offset;
  f.rounds = a->policy == TG_RMS_NORM_LLAMA;
  if (f.whole && f.layout.threads < kWarp && a->x.dtype != TG_F32) {
    f.at_once = 2; /* one short row per thread would leave memory idle during the reduction */
  }
  return f;
}

} // namespace

extern "C" tg_status TGI_KERNEL(rms_norm_fwd)(const tg_context *ctx, const tg_rms_norm_fwd_args *a)
{
  return run_forward<kNormAlone>(ctx, plan_fwd(a), &a->x, &a->weight, &a->y);
}

extern "C" void TGI_PLAN(rms_norm_fwd)(const tg_context *, const tg_rms_norm_fwd_args *a,
                                       char *text, size_t bytes)
{
  const norm_forward f = plan_fwd(a);
  row_layout layout = f.layout;
  layout.rows *= f.at_once;
  explain_rows(f.rows, f.whole, layout, text, bytes);
}
