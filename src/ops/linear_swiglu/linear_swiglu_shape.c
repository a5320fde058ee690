#include "ops/shape.h"

/* once: one rounding behind gate and up. save: gate and up are stored. wf32: f32 weights beside
 * 16-bit x; xf32: f32 x and results beside 16-bit weights. */
const char tgi_linear_swiglu_fwd_syntax[] = "ROWSxINxOUT[_once][_save][_wf32][_xf32]";

void tgi_linear_swiglu_fwd_shape(tgi_shape *s, tg_linear_swiglu_fwd_args *a)
{
  const int64_t rows = tgi_shape_extent(s, 0), in = tgi_shape_extent(s, 1);
  const int64_t out = tgi_shape_extent(s, 2);
  const tg_dtype weight = tgi_shape_flag(s, "wf32") ? TG_F32 : s->dtype;
  const tg_dtype x = tgi_shape_flag(s, "xf32") ? TG_F32 : s->dtype;
  a->x = tg_tensor_2d(NULL, x, rows, in);
  a->gate_weight = tg_tensor_2d(NULL, weight, out, in);
  a->up_weight = a->gate_weight;
  a->y = tg_tensor_2d(NULL, x, rows, out);
  if (tgi_shape_flag(s, "save")) {
    a->gate = a->up = a->y;
  }
  a->rounding = tgi_shape_flag(s, "once") ? TG_ROUNDING_ONCE : TG_ROUNDING_HF;
}

void tgi_linear_swiglu_fwd_cost(const tg_linear_swiglu_fwd_args *a, tgi_cost *cost)
{
  cost->flops = 4.0 * (double)tgi_numel(&a->x) * (double)a->gate_weight.shape[0] +
                27.0 * (double)tgi_numel(&a->y);
}
