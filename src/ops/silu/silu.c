#include "ops/kernels.h"

static tgi_call check_fwd(const tg_context *ctx, const tg_silu_fwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, silu_fwd, a, sizing);
  if (call.status == TG_OK) {
    const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
    TGI_WANT_SHAPE(&call, a, y, rows, cols);
    TGI_WANT_DTYPE(&call, a, y, TG_DTYPE_BIT(a->x.dtype));
    call.empty = rows == 0 || cols == 0;
  }
  return call;
}

tg_status tg_silu_fwd(tg_context *ctx, const tg_silu_fwd_args *args)
{
  tgi_call call = check_fwd(ctx, args, false);
  return TGI_RUN(&call, silu_fwd, args);
}

tg_status tg_silu_fwd_workspace(const tg_context *ctx, const tg_silu_fwd_args *args, size_t *bytes)
{
  tgi_call call = check_fwd(ctx, args, true);
  return TGI_SIZE(&call, silu_fwd, args, bytes);
}

static tgi_call check_bwd(const tg_context *ctx, const tg_silu_bwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, silu_bwd, a, sizing);
  if (call.status == TG_OK) {
    const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
    TGI_WANT_SHAPE(&call, a, dy, rows, cols);
    TGI_WANT_DTYPE(&call, a, dy, TG_DTYPE_BIT(a->x.dtype));
    TGI_WANT_SHAPE(&call, a, dx, rows, cols);
    TGI_WANT_DTYPE(&call, a, dx, TG_DTYPE_BIT(a->x.dtype));
    call.empty = rows == 0 || cols == 0;
  }
  return call;
}

tg_status tg_silu_bwd(tg_context *ctx, const tg_silu_bwd_args *args)
{
  tgi_call call = check_bwd(ctx, args, false);
  return TGI_RUN(&call, silu_bwd, args);
}

tg_status tg_silu_bwd_workspace(const tg_context *ctx, const tg_silu_bwd_args *args, size_t *bytes)
{
  tgi_call call = check_bwd(ctx, args, true);
  return TGI_SIZE(&call, silu_bwd, args, bytes);
}
