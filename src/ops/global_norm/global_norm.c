#include "ops/kernels.h"

static tgi_call check(const tg_context *ctx, const tg_global_norm_fwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, global_norm_fwd, a, sizing);
  if (call.status == TG_OK) {
    TGI_WANT_SHAPE(&call, a, norm, 1);
    TGI_WANT_SHAPE(&call, a, clip, 1);
    if (tgi_present(&a->clip)) {
      tgi_want_positive(&call, "max_norm", (double)a->max_norm);
    }
  }
  return call;
}

tg_status tg_global_norm_fwd_workspace(const tg_context *ctx, const tg_global_norm_fwd_args *args,
                                       size_t *bytes)
{
  tgi_call call = check(ctx, args, true);
  return TGI_SIZE(&call, global_norm_fwd, args, bytes);
}

tg_status tg_global_norm_fwd(tg_context *ctx, const tg_global_norm_fwd_args *args)
{
  tgi_call call = check(ctx, args, false);
  TGI_WANT_WORKSPACE(&call, global_norm_fwd, args);
  return TGI_RUN(&call, global_norm_fwd, args);
}
