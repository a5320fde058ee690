#include "ops/kernels.h"

/* Smaller ones could not tell -infinity from the largest finite difference. */
static void check_scale(tgi_call *call, float scale)
{
  tgi_want_positive(call, "scale", scale);
  if (scale < 0x1p-100f) {
    tgi_fail(call, TG_BAD_ARGUMENT, "scale", "expected 2^-100 or more, got %g", (double)scale);
  }
}

static tgi_call check_fwd(const tg_context *ctx, const tg_softmax_fwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, softmax_fwd, a, sizing);
  if (call.status == TG_OK) {
    const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
    TGI_WANT_SHAPE(&call, a, y, rows, cols);
    TGI_WANT_DTYPE(&call, a, y, TG_DTYPE_BIT(a->x.dtype));
    check_scale(&call, a->scale);
    call.empty = rows == 0 || cols == 0;
  }
  return call;
}

tg_status tg_softmax_fwd_workspace(const tg_context *ctx, const tg_softmax_fwd_args *args,
                                   size_t *bytes)
{
  tgi_call call = check_fwd(ctx, args, true);
  return TGI_SIZE(&call, softmax_fwd, args, bytes);
}

tg_status tg_softmax_fwd(tg_context *ctx, const tg_softmax_fwd_args *args)
{
  tgi_call call = check_fwd(ctx, args, false);
  TGI_WANT_WORKSPACE(&call, softmax_fwd, args);
  return TGI_RUN(&call, softmax_fwd, args);
}

static tgi_call check_bwd(const tg_context *ctx, const tg_softmax_bwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, softmax_bwd, a, sizing);
  if (call.status == TG_OK) {
    const int64_t rows = a->y.shape[0], cols = a->y.shape[1];
    TGI_WANT_SHAPE(&call, a, dy, rows, cols);
    TGI_WANT_DTYPE(&call, a, dy, TG_DTYPE_BIT(a->y.dtype));
    TGI_WANT_SHAPE(&call, a, dx, rows, cols);
    TGI_WANT_DTYPE(&call, a, dx, TG_DTYPE_BIT(a->y.dtype));
    check_scale(&call, a->scale);
    call.empty = rows == 0 || cols == 0;
  }
  return call;
}

tg_status tg_softmax_bwd(tg_context *ctx, const tg_softmax_bwd_args *args)
{
  tgi_call call = check_bwd(ctx, args, false);
  return TGI_RUN(&call, softmax_bwd, args);
}

tg_status tg_softmax_bwd_workspace(const tg_context *ctx, const tg_softmax_bwd_args *args,
                                   size_t *bytes)
{
  tgi_call call = check_bwd(ctx, args, true);
  return TGI_SIZE(&call, softmax_bwd, args, bytes);
}
