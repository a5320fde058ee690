#include "ops/kernels.h"

static tgi_call check_fwd(const tg_context *ctx, const tg_gelu_fwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, gelu_fwd, a, sizing);
  if (call.status == TG_OK) {
    const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
    TGI_WANT_SHAPE(&call, a, y, rows, cols);
    TGI_WANT_DTYPE(&call, a, y, TG_DTYPE_BIT(a->x.dtype));
    tgi_want_range(&call, "approximation", a->approximation, TG_GELU_TANH, TG_GELU_ERF);
    call.empty = rows == 0 || cols == 0;
  }
  return call;
}

tg_status tg_gelu_fwd(tg_context *ctx, const tg_gelu_fwd_args *args)
{
  tgi_call call = check_fwd(ctx, args, false);
  return TGI_RUN(&call, gelu_fwd, args);
}

tg_status tg_gelu_fwd_workspace(const tg_context *ctx, const tg_gelu_fwd_args *args, size_t *bytes)
{
  tgi_call call = check_fwd(ctx, args, true);
  return TGI_SIZE(&call, gelu_fwd, args, bytes);
}

static tgi_call check_bwd(const tg_context *ctx, const tg_gelu_bwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, gelu_bwd, a, sizing);
  if (call.status == TG_OK) {
    const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
    TGI_WANT_SHAPE(&call, a, dy, rows, cols);
    TGI_WANT_DTYPE(&call, a, dy, TG_DTYPE_BIT(a->x.dtype));
    TGI_WANT_SHAPE(&call, a, dx, rows, cols);
    TGI_WANT_DTYPE(&call, a, dx, TG_DTYPE_BIT(a->x.dtype));
    tgi_want_range(&call, "approximation", a->approximation, TG_GELU_TANH, TG_GELU_ERF);
    call.empty = rows == 0 || cols == 0;
  }
  return call;
}

tg_status tg_gelu_bwd(tg_context *ctx, const tg_gelu_bwd_args *args)
{
  tgi_call call = check_bwd(ctx, args, false);
  return TGI_RUN(&call, gelu_bwd, args);
}

tg_status tg_gelu_bwd_workspace(const tg_context *ctx, const tg_gelu_bwd_args *args, size_t *bytes)
{
  tgi_call call = check_bwd(ctx, args, true);
  return TGI_SIZE(&call, gelu_bwd, args, bytes);
}
