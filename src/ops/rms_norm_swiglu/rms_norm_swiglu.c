#include "ops/kernels.h"

/* Facts that both directions share. */
static void check_inputs(tgi_call *call, const tg_tensor *x, const tg_tensor *gate,
                         const tg_tensor *weight)
{
  tgi_want_shape(call, "gate", gate, 2, x->shape);
  tgi_want_dtype(call, "gate", gate, TG_DTYPE_BIT(x->dtype));
  tgi_want_shape(call, "weight", weight, 1, &x->shape[1]);
  tgi_want_dtype(call, "weight", weight, tgi_like_or_f32(x));
  call->empty = x->shape[0] == 0 || x->shape[1] == 0;
}

static tgi_call check_fwd(const tg_context *ctx, const tg_rms_norm_swiglu_fwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, rms_norm_swiglu_fwd, a, sizing);
  if (call.status == TG_OK) {
    const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
    check_inputs(&call, &a->x, &a->gate, &a->weight);
    TGI_WANT_SHAPE(&call, a, y, rows, cols);
    TGI_WANT_DTYPE(&call, a, y, TG_DTYPE_BIT(a->x.dtype));
    TGI_WANT_SHAPE(&call, a, rstd, rows);
    tgi_want_positive(&call, "eps", a->eps);
    tgi_want_range(&call, "rounding", a->rounding, TG_ROUNDING_HF, TG_ROUNDING_ONCE);
  }
  return call;
}

tg_status tg_rms_norm_swiglu_fwd(tg_context *ctx, const tg_rms_norm_swiglu_fwd_args *args)
{
  tgi_call call = check_fwd(ctx, args, false);
  return TGI_RUN(&call, rms_norm_swiglu_fwd, args);
}

tg_status tg_rms_norm_swiglu_fwd_workspace(const tg_context *ctx,
                                           const tg_rms_norm_swiglu_fwd_args *args, size_t *bytes)
{
  tgi_call call = check_fwd(ctx, args, true);
  return TGI_SIZE(&call, rms_norm_swiglu_fwd, args, bytes);
}

static tgi_call check_bwd(const tg_context *ctx, const tg_rms_norm_swiglu_bwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, rms_norm_swiglu_bwd, a, sizing);
  if (call.status == TG_OK) {
    const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
    check_inputs(&call, &a->x, &a->gate, &a->weight);
    TGI_WANT_SHAPE(&call, a, dy, rows, cols);
    TGI_WANT_DTYPE(&call, a, dy, TG_DTYPE_BIT(a->x.dtype));
    TGI_WANT_SHAPE(&call, a, rstd, rows);
    TGI_WANT_SHAPE(&call, a, dx, rows, cols);
    TGI_WANT_DTYPE(&call, a, dx, TG_DTYPE_BIT(a->x.dtype));
    TGI_WANT_SHAPE(&call, a, dgate, rows, cols);
    TGI_WANT_DTYPE(&call, a, dgate, TG_DTYPE_BIT(a->x.dtype));
    TGI_WANT_SHAPE(&call, a, dweight, cols);
    TGI_WANT_DTYPE(&call, a, dweight, tgi_like_or_f32(&a->weight));
  }
  return call;
}

tg_status tg_rms_norm_swiglu_bwd_workspace(const tg_context *ctx,
                                           const tg_rms_norm_swiglu_bwd_args *args, size_t *bytes)
{
  tgi_call call = check_bwd(ctx, args, true);
  return TGI_SIZE(&call, rms_norm_swiglu_bwd, args, bytes);
}

tg_status tg_rms_norm_swiglu_bwd(tg_context *ctx, const tg_rms_norm_swiglu_bwd_args *args)
{
  tgi_call call = check_bwd(ctx, args, false);
  TGI_WANT_WORKSPACE(&call, rms_norm_swiglu_bwd, args);
  return TGI_RUN(&call, rms_norm_swiglu_bwd, args);
}
