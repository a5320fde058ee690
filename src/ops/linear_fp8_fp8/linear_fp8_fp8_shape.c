#include "ops/shape.h"

const char tgi_linear_fp8_fp8_fwd_syntax[] =
    "ROWSxINxOUT[_xf8][_onescale][_fast][_bias][_bf32][_yf32]";

void tgi_linear_fp8_fp8_fwd_shape(tgi_shape *s, tg_linear_fp8_fp8_fwd_args *a)
{
  const int64_t rows = tgi_shape_extent(s, 0), in = tgi_shape_extent(s, 1);
  const int64_t out = tgi_shape_extent(s, 2);
  const bool bias_f32 = tgi_shape_flag(s, "bf32"), y_f32 = tgi_shape_flag(s, "yf32");
  const bool codes = tgi_shape_flag(s, "xf8");
  a->x = tg_tensor_2d(NULL, codes ? TG_F8_E4M3 : s->dtype, rows, in);
  if (codes) {
    a->x_scale = tg_tensor_1d(NULL, TG_F32, rows);
  }
  a->weight = tg_tensor_2d(NULL, TG_F8_E4M3, out, in);
  a->weight_scale = tg_tensor_1d(NULL, TG_F32, tgi_shape_flag(s, "onescale") ? 1 : out);
  a->y = tg_tensor_2d(NULL, y_f32 ? TG_F32 : s->dtype, rows, out);
  if (tgi_shape_flag(s, "bias")) {
    a->bias = tg_tensor_1d(NULL, bias_f32 ? TG_F32 : codes ? a->y.dtype : s->dtype, out);
  }
  a->allow_fast_accum = tgi_shape_flag(s, "fast");
}

void tgi_linear_fp8_fp8_fwd_cost(const tg_linear_fp8_fp8_fwd_args *a, tgi_cost *cost)
{
  cost->flops = 2.0 * (double)tgi_numel(&a->x) * (double)a->y.shape[1];
}
