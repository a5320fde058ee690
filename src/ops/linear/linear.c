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

void tgi_linear_fwd_check(tgi_call *call, const tg_linear_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], in = a->x.shape[1], out = a->weight.shape[0];
  TGI_WANT_SHAPE(call, a, weight, out, in);
  TGI_WANT_DTYPE(call, a, weight, weight_dtypes(&a->x));
  TGI_WANT_SHAPE(call, a, bias, out);
  TGI_WANT_DTYPE(call, a, bias, tgi_like_or_f32(&a->weight));
  TGI_WANT_SHAPE(call, a, y, rows, out);
  TGI_WANT_DTYPE(call, a, y, tgi_like_or_f32(&a->x));
  TGI_WANT_SHAPE(call, a, residual, rows, out);
  TGI_WANT_DTYPE(call, a, residual, TG_DTYPE_BIT(a->y.dtype));
  TGI_WANT_SHAPE(call, a, preactivation, rows, out);
  TGI_WANT_DTYPE(call, a, preactivation, TG_DTYPE_BIT(a->y.dtype));
  check_activation(call, a->activation);
  call->empty = rows == 0 || out == 0;
}

void tgi_linear_bwd_check(tgi_call *call, const tg_linear_bwd_args *a)
{
  const int64_t rows = a->x.shape[0], in = a->x.shape[1], out = a->weight.shape[0];
  TGI_WANT_SHAPE(call, a, weight, out, in);
  TGI_WANT_DTYPE(call, a, weight, weight_dtypes(&a->x));
  TGI_WANT_SHAPE(call, a, dy, rows, out);
  TGI_WANT_DTYPE(call, a, dy, tgi_like_or_f32(&a->x));
  TGI_WANT_SHAPE(call, a, preactivation, rows, out);
  TGI_WANT_DTYPE(call, a, preactivation, TG_DTYPE_BIT(a->dy.dtype));
  TGI_WANT_SHAPE(call, a, dx, rows, in);
  TGI_WANT_DTYPE(call, a, dx, TG_DTYPE_BIT(a->x.dtype));
  TGI_WANT_SHAPE(call, a, dweight, out, in);
  TGI_WANT_DTYPE(call, a, dweight, tgi_like_or_f32(&a->weight));
  TGI_WANT_SHAPE(call, a, dbias, out);
  TGI_WANT_DTYPE(call, a, dbias, tgi_like_or_f32(&a->weight));
  check_activation(call, a->activation);
  if (a->activation != TG_ACTIVATION_NONE && !tgi_present(&a->preactivation)) {
    tgi_fail(call, TG_BAD_ARGUMENT, "preactivation", "expected the forward's, got none");
  }
  call->empty = rows == 0 && !a->overwrite;
}
