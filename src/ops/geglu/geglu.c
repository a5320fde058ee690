#include "ops/gated.h"
#include "ops/kernels.h"

static tgi_call check_fwd(const tg_context *ctx, const tg_geglu_fwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, geglu_fwd, a, sizing);
  if (call.status == TG_OK) {
    tgi_want_gated_fwd(&call, TGI_GATE_UP(a), &a->y, a->rounding);
    tgi_want_range(&call, "approximation", a->approximation, TG_GELU_TANH, TG_GELU_ERF);
  }
  return call;
}

tg_status tg_geglu_fwd(tg_context *ctx, const tg_geglu_fwd_args *args)
{
  tgi_call call = check_fwd(ctx, args, false);
  return TGI_RUN(&call, geglu_fwd, args);
}

tg_status tg_geglu_fwd_workspace(const tg_context *ctx, const tg_geglu_fwd_args *args,
                                 size_t *bytes)
{
  tgi_call call = check_fwd(ctx, args, true);
  return TGI_SIZE(&call, geglu_fwd, args, bytes);
}

static tgi_call check_bwd(const tg_context *ctx, const tg_geglu_bwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, geglu_bwd, a, sizing);
  if (call.status == TG_OK) {
    tgi_want_gated_bwd(&call, &a->dy, TGI_GATE_UP(a), TGI_DGATE_UP(a));
    tgi_want_range(&call, "approximation", a->approximation, TG_GELU_TANH, TG_GELU_ERF);
  }
  return call;
}

tg_status tg_geglu_bwd(tg_context *ctx, const tg_geglu_bwd_args *args)
{
  tgi_call call = check_bwd(ctx, args, false);
  return TGI_RUN(&call, geglu_bwd, args);
}

tg_status tg_geglu_bwd_workspace(const tg_context *ctx, const tg_geglu_bwd_args *args,
                                 size_t *bytes)
{
  tgi_call call = check_bwd(ctx, args, true);
  return TGI_SIZE(&call, geglu_bwd, args, bytes);
}
