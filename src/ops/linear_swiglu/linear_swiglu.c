#include "ops/linear_swiglu/linear_swiglu_steps.h"

void tgi_linear_swiglu_fwd_check(tgi_call *call, const tg_linear_swiglu_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], in = a->x.shape[1], out = a->gate_weight.shape[0];
  const uint32_t like_x = TG_DTYPE_BIT(a->x.dtype);
  TGI_WANT_SHAPE(call, a, gate_weight, out, in);
  TGI_WANT_DTYPE(call, a, gate_weight,
                 a->x.dtype == TG_F32 ? TGI_BITS_FLOATS : tgi_like_or_f32(&a->x));
  TGI_WANT_SHAPE(call, a, up_weight, out, in);
  TGI_WANT_DTYPE(call, a, up_weight, TG_DTYPE_BIT(a->gate_weight.dtype));
  TGI_WANT_SHAPE(call, a, y, rows, out);
  TGI_WANT_DTYPE(call, a, y, like_x);
  TGI_WANT_SHAPE(call, a, gate, rows, out);
  TGI_WANT_DTYPE(call, a, gate, like_x);
  TGI_WANT_SHAPE(call, a, up, rows, out);
  TGI_WANT_DTYPE(call, a, up, like_x);
  if (tgi_present(&a->gate) && !tgi_present(&a->up)) {
    tgi_fail(call, TG_BAD_ARGUMENT, "up", "expected a tensor beside gate, got none");
  } else if (tgi_present(&a->up) && !tgi_present(&a->gate)) {
    tgi_fail(call, TG_BAD_ARGUMENT, "gate", "expected a tensor beside up, got none");
  }
  tgi_want_range(call, "rounding", a->rounding, TG_ROUNDING_HF, TG_ROUNDING_ONCE);
  call->empty = rows == 0 || out == 0;
}

linear_swiglu_steps tgi_linear_swiglu_steps(const tg_linear_swiglu_fwd_args *a)
{
  const bool saves = tgi_present(&a->gate);
  const int64_t rows = a->y.shape[0], out = a->y.shape[1];
  linear_swiglu_steps s = {0};
  if (!saves) {
    s.bytes = ((size_t)rows * (size_t)out * tg_dtype_bytes(a->y.dtype) + 255) / 256 * 256;
  }
  s.gate.x = s.up.x = a->x;
  s.gate.weight = a->gate_weight;
  s.up.weight = a->up_weight;
  s.gate.y = saves ? a->gate : a->y;
  s.up.y = saves ? a->up : tg_tensor_2d(a->workspace, a->y.dtype, rows, out);
  s.gate.workspace = s.up.workspace = a->workspace ? (char *)a->workspace + s.bytes : NULL;
  s.act.gate = s.gate.y;
  s.act.up = s.up.y;
  s.act.y = a->y;
  s.act.rounding = a->rounding;
  return s;
}
