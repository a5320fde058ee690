#include "ops/kernels.h"
#include "ops/linear_fp8/linear_fp8_packed.h"

void tgi_linear_fp8_fwd_check(tgi_call *call, const tg_linear_fp8_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], in = a->x.shape[1], out = a->y.shape[1];
  TGI_WANT_SHAPE(call, a, weight, tg_linear_fp8_packed_bytes(out, in));
  TGI_WANT_SHAPE(call, a, bias, out);
  TGI_WANT_DTYPE(call, a, bias, tgi_like_or_f32(&a->x));
  TGI_WANT_SHAPE(call, a, y, rows, out);
  TGI_WANT_DTYPE(call, a, y, tgi_like_or_f32(&a->x));
  tgi_want_packed(call, &a->weight, TGI_FP8_MAGIC, TGI_FP8_VERSION, out, in);
  call->empty = rows == 0 || out == 0;
}
