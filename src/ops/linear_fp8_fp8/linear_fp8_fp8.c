#include "ops/kernels.h"

void tgi_linear_fp8_fp8_fwd_check(tgi_call *call, const tg_linear_fp8_fp8_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], in = a->x.shape[1], out = a->weight.shape[0];
  const bool codes = a->x.dtype == TG_F8_E4M3;
  if (tgi_present(&a->x_scale) != codes) {
    tgi_fail(call, TG_BAD_ARGUMENT, "x_scale", "expected %s, got %s",
             codes ? "scales of x in f8_e4m3" : "none of x that is quantised in the call",
             codes ? "none" : "scales");
  }
  TGI_WANT_SHAPE(call, a, x_scale, rows);
  TGI_WANT_SHAPE(call, a, weight, out, in);
  if (a->weight_scale.shape[0] != 1) {
    TGI_WANT_SHAPE(call, a, weight_scale, out);
  }
  TGI_WANT_SHAPE(call, a, bias, out);
  TGI_WANT_SHAPE(call, a, y, rows, out);
  if (!codes) {
    TGI_WANT_DTYPE(call, a, y, tgi_like_or_f32(&a->x));
  }
  TGI_WANT_DTYPE(call, a, bias, tgi_like_or_f32(codes ? &a->y : &a->x));
  call->empty = rows == 0 || out == 0;
}
