#include "ops/kernels.h"

/* Checks that both directions share. */
static void check_inputs(tgi_call *call, const tg_tensor *x, const tg_tensor *gate,
                         const tg_tensor *weight)
{
  tgi_want_shape(call, "gate", gate, 2, x->shape);
  tgi_want_dtype(call, "gate", gate, TG_DTYPE_BIT(x->dtype));
  tgi_want_shape(call, "weight", weight, 1, &x->shape[1]);
  tgi_want_dtype(call, "weight", weight, tgi_like_or_f32(x));
  call->empty = x->shape[0] == 0 || x->shape[1] == 0;
}

void tgi_rms_norm_swiglu_fwd_check(tgi_call *call, const tg_rms_norm_swiglu_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
  check_inputs(call, &a->x, &a->gate, &a->weight);
  TGI_WANT_SHAPE(call, a, y, rows, cols);
  TGI_WANT_DTYPE(call, a, y, TG_DTYPE_BIT(a->x.dtype));
  TGI_WANT_SHAPE(call, a, rstd, rows);
  tgi_want_positive(call, "eps", a->eps);
  tgi_want_range(call, "rounding", a->rounding, TG_ROUNDING_HF, TG_ROUNDING_ONCE);
}

void tgi_rms_norm_swiglu_bwd_check(tgi_call *call, const tg_rms_norm_swiglu_bwd_args *a)
{
  const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
  check_inputs(call, &a->x, &a->gate, &a->weight);
  TGI_WANT_SHAPE(call, a, dy, rows, cols);
  TGI_WANT_DTYPE(call, a, dy, TG_DTYPE_BIT(a->x.dtype));
  TGI_WANT_SHAPE(call, a, rstd, rows);
  TGI_WANT_SHAPE(call, a, dx, rows, cols);
  TGI_WANT_DTYPE(call, a, dx, TG_DTYPE_BIT(a->x.dtype));
  TGI_WANT_SHAPE(call, a, dgate, rows, cols);
  TGI_WANT_DTYPE(call, a, dgate, TG_DTYPE_BIT(a->x.dtype));
  TGI_WANT_SHAPE(call, a, dweight, cols);
  TGI_WANT_DTYPE(call, a, dweight, tgi_like_or_f32(&a->weight));
}
