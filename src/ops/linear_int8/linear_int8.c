#include "ops/kernels.h"
#include "ops/linear_int8/linear_int8_packed.h"

void tgi_linear_int8_fwd_check(tgi_call *call, const tg_linear_int8_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], in = a->x.shape[1], out = a->y.shape[1];
  TGI_WANT_SHAPE(call, a, weight, tg_linear_int8_packed_bytes(out, in));
  TGI_WANT_SHAPE(call, a, bias, out);
  TGI_WANT_DTYPE(call, a, bias, tgi_like_or_f32(&a->x));
  TGI_WANT_SHAPE(call, a, y, rows, out);
  TGI_WANT_DTYPE(call, a, y, tgi_like_or_f32(&a->x));
  tgi_want_range(call, "mode", a->mode, TG_INT8_WEIGHT_ONLY, TG_INT8_DYNAMIC);
  tgi_want_packed(call, &a->weight, TGI_INT8_MAGIC, TGI_INT8_VERSION, out, in);
  call->empty = rows == 0 || out == 0;
}
