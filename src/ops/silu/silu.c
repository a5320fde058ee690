#include "ops/kernels.h"

void tgi_silu_fwd_check(tgi_call *call, const tg_silu_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
  TGI_WANT_SHAPE(call, a, y, rows, cols);
  TGI_WANT_DTYPE(call, a, y, TG_DTYPE_BIT(a->x.dtype));
  call->empty = rows == 0 || cols == 0;
}

void tgi_silu_bwd_check(tgi_call *call, const tg_silu_bwd_args *a)
{
  const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
  TGI_WANT_SHAPE(call, a, dy, rows, cols);
  TGI_WANT_DTYPE(call, a, dy, TG_DTYPE_BIT(a->x.dtype));
  TGI_WANT_SHAPE(call, a, dx, rows, cols);
  TGI_WANT_DTYPE(call, a, dx, TG_DTYPE_BIT(a->x.dtype));
  call->empty = rows == 0 || cols == 0;
}
