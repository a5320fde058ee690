#include "ops/gated.h"
#include "ops/kernels.h"

static tgi_call check_fwd(const tg_context *ctx, const tg_swiglu_clamped_fwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, swiglu_clamped_fwd, a, sizing);
  if (call.status == TG_OK) {
    tgi_want_gated_fwd(&call, TGI_GATE_UP(a), &a->y, a->rounding);
    tgi_want_positive(&call, "alpha", (double)a->alpha);
    tgi_want_positive(&call, "limit", (double)a->limit);
  }
  return call;
}

tg_status tg_swiglu_clamped_fwd(tg_context *ctx, const tg_swiglu_clamped_fwd_args *args)
{
  tgi_call call = check_fwd(ctx, args, false);
  return TGI_RUN(&call, swiglu_clamped_fwd, args);
}

tg_status tg_swiglu_clamped_fwd_workspace(const tg_context *ctx,
                                          const tg_swiglu_clamped_fwd_args *args, size_t *bytes)
{
  tgi_call call = check_fwd(ctx, args, true);
  return TGI_SIZE(&call, swiglu_clamped_fwd, args, bytes);
}

static tgi_call check_bwd(const tg_context *ctx, const tg_swiglu_clamped_bwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, swiglu_clamped_bwd, a, sizing);
  if (call.status == TG_OK) {
    tgi_want_gated_bwd(&call, &a->dy, TGI_GATE_UP(a), TGI_DGATE_UP(a));
    tgi_want_positive(&call, "alpha", (double)a->alpha);
    tgi_want_positive(&call, "limit", (double)a->limit);
  }
  return call;
}

tg_status tg_swiglu_clamped_bwd(tg_context *ctx, const tg_swiglu_clamped_bwd_args *args)
{
  tgi_call call = check_bwd(ctx, args, false);
  return TGI_RUN(&call, swiglu_clamped_bwd, args);
}

tg_status tg_swiglu_clamped_bwd_workspace(const tg_context *ctx,
                                          const tg_swiglu_clamped_bwd_args *args, size_t *bytes)
{
  tgi_call call = check_bwd(ctx, args, true);
  return TGI_SIZE(&call, swiglu_clamped_bwd, args, bytes);
}
