#include "ops/kernels.h"

/* Beside f32 anything goes; two 16-bit operands are of one dtype. */
static uint32_t weight_dtypes(const tg_tensor *x)
{
  return x->dtype == TG_F32 ? TGI_BITS_FLOATS : tgi_like_or_f32(x);
}

static void check_activation(tgi_call *call, tg_activation activation)
{
  tgi_want_range(call, "activation", activation, TG_ACTIVATION_NONE, TG_ACTIVATION_GELU_ERF);
}

static tgi_call check_fwd(const tg_context *ctx, const tg_linear_fwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, linear_fwd, a, sizing);
  if (call.status == TG_OK) {
    const int64_t rows = a->x.shape[0], in = a->x.shape[1], out = a->weight.shape[0];
    TGI_WANT_SHAPE(&call, a, weight, out, in);
    TGI_WANT_DTYPE(&call, a, weight, weight_dtypes(&a->x));
    TGI_WANT_SHAPE(&call, a, bias, out);
    TGI_WANT_DTYPE(&call, a, bias, tgi_like_or_f32(&a->weight));
    TGI_WANT_SHAPE(&call, a, y, rows, out);
    TGI_WANT_DTYPE(&call, a, y, tgi_like_or_f32(&a->x));
    TGI_WANT_SHAPE(&call, a, residual, rows, out);
    TGI_WANT_DTYPE(&call, a, residual, TG_DTYPE_BIT(a->y.dtype));
    TGI_WANT_SHAPE(&call, a, preactivation, rows, out);
    TGI_WANT_DTYPE(&call, a, preactivation, TG_DTYPE_BIT(a->y.dtype));
    check_activation(&call, a->activation);
    call.empty = rows == 0 || out == 0;
  }
  return call;
}

tg_status tg_linear_fwd_workspace(const tg_context *ctx, const tg_linear_fwd_args *args,
                                  size_t *bytes)
{
  tgi_call call = check_fwd(ctx, args, true);
  return TGI_SIZE(&call, linear_fwd, args, bytes);
}

tg_status tg_linear_fwd(tg_context *ctx, const tg_linear_fwd_args *args)
{
  tgi_call call = check_fwd(ctx, args, false);
  TGI_WANT_WORKSPACE(&call, linear_fwd, args);
  return TGI_RUN(&call, linear_fwd, args);
}

static tgi_call check_bwd(const tg_context *ctx, const tg_linear_bwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, linear_bwd, a, sizing);
  if (call.status == TG_OK) {
    const int64_t rows = a->x.shape[0], in = a->x.shape[1], out = a->weight.shape[0];
    TGI_WANT_SHAPE(&call, a, weight, out, in);
    TGI_WANT_DTYPE(&call, a, weight, weight_dtypes(&a->x));
    TGI_WANT_SHAPE(&call, a, dy, rows, out);
    TGI_WANT_DTYPE(&call, a, dy, tgi_like_or_f32(&a->x));
    TGI_WANT_SHAPE(&call, a, preactivation, rows, out);
    TGI_WANT_DTYPE(&call, a, preactivation, TG_DTYPE_BIT(a->dy.dtype));
    TGI_WANT_SHAPE(&call, a, dx, rows, in);
    TGI_WANT_DTYPE(&call, a, dx, TG_DTYPE_BIT(a->x.dtype));
    TGI_WANT_SHAPE(&call, a, dweight, out, in);
    TGI_WANT_DTYPE(&call, a, dweight, tgi_like_or_f32(&a->weight));
    TGI_WANT_SHAPE(&call, a, dbias, out);
    TGI_WANT_DTYPE(&call, a, dbias, tgi_like_or_f32(&a->weight));
    check_activation(&call, a->activation);
    if (a->activation != TG_ACTIVATION_NONE && !tgi_present(&a->preactivation)) {
      tgi_fail(&call, TG_BAD_ARGUMENT, "preactivation", "expected the forward's, got none");
    }
    call.empty = rows == 0;
  }
  return call;
}

tg_status tg_linear_bwd_workspace(const tg_context *ctx, const tg_linear_bwd_args *args,
                                  size_t *bytes)
{
  tgi_call call = check_bwd(ctx, args, true);
  return TGI_SIZE(&call, linear_bwd, args, bytes);
}

tg_status tg_linear_bwd(tg_context *ctx, const tg_linear_bwd_args *args)
{
  tgi_call call = check_bwd(ctx, args, false);
  TGI_WANT_WORKSPACE(&call, linear_bwd, args);
  return TGI_RUN(&call, linear_bwd, args);
}
