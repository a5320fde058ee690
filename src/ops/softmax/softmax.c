#include "ops/kernels.h"

/* Smaller ones could not tell -infinity from the largest finite difference. */
static void check_scale(tgi_call *call, float scale)
{
  tgi_want_positive(call, "scale", scale);
  if (scale < 0x1p-100f) {
    tgi_fail(call, TG_BAD_ARGUMENT, "scale", "expected 2^-100 or more, got %g", (double)scale);
  }
}

void tgi_softmax_fwd_check(tgi_call *call, const tg_softmax_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
  TGI_WANT_SHAPE(call, a, y, rows, cols);
  TGI_WANT_DTYPE(call, a, y, TG_DTYPE_BIT(a->x.dtype));
  check_scale(call, a->scale);
  call->empty = rows == 0 || cols == 0;
}

void tgi_softmax_bwd_check(tgi_call *call, const tg_softmax_bwd_args *a)
{
  const int64_t rows = a->y.shape[0], cols = a->y.shape[1];
  TGI_WANT_SHAPE(call, a, dy, rows, cols);
  TGI_WANT_DTYPE(call, a, dy, TG_DTYPE_BIT(a->y.dtype));
  TGI_WANT_SHAPE(call, a, dx, rows, cols);
  TGI_WANT_DTYPE(call, a, dx, TG_DTYPE_BIT(a->y.dtype));
  check_scale(call, a->scale);
  call->empty = rows == 0 || cols == 0;
}
