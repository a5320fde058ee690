#include "ops/shape.h"

/* One syntax for both directions: a backward's case is also read by its forward. */
#define SYNTAX "ROWSxCOLS[_once][_wf32][_norstd][_nodx][_nodgate][_nodweight][_dwf32]"

const char tgi_rms_norm_swiglu_fwd_syntax[] = SYNTAX;
const char tgi_rms_norm_swiglu_bwd_syntax[] = SYNTAX;

/* wf32: f32 weight with 16-bit x. */
static tg_dtype weight_dtype(tgi_shape *s)
{
  return tgi_shape_flag(s, "wf32") ? TG_F32 : s->dtype;
}

void tgi_rms_norm_swiglu_fwd_shape(tgi_shape *s, tg_rms_norm_swiglu_fwd_args *a)
{
  const int64_t rows = tgi_shape_extent(s, 0), cols = tgi_shape_extent(s, 1);
  a->x = a->gate = a->y = tg_tensor_2d(NULL, s->dtype, rows, cols);
  a->weight = tg_tensor_1d(NULL, weight_dtype(s), cols);
  if (!tgi_shape_flag(s, "norstd")) {
    a->rstd = tg_tensor_1d(NULL, TG_F32, rows);
  }
  a->eps = 1e-6f;
  a->rounding = tgi_shape_flag(s, "once") ? TG_ROUNDING_ONCE : TG_ROUNDING_HF;
  (void)tgi_shape_flag(s, "nodx"), (void)tgi_shape_flag(s, "nodgate");
  (void)tgi_shape_flag(s, "nodweight"), (void)tgi_shape_flag(s, "dwf32");
}

/* Vector operations, an fma counted twice. */
void tgi_rms_norm_swiglu_fwd_cost(const tg_rms_norm_swiglu_fwd_args *a, tgi_cost *cost)
{
  cost->flops = 30.0 * (double)tgi_numel(&a->x);
}

void tgi_rms_norm_swiglu_bwd_shape(tgi_shape *s, tg_rms_norm_swiglu_bwd_args *a)
{
  const int64_t rows = tgi_shape_extent(s, 0), cols = tgi_shape_extent(s, 1);
  (void)tgi_shape_flag(s, "once"), (void)tgi_shape_flag(s, "norstd");
  a->dy = a->x = a->gate = tg_tensor_2d(NULL, s->dtype, rows, cols);
  a->weight = tg_tensor_1d(NULL, weight_dtype(s), cols);
  a->rstd = tg_tensor_1d(NULL, TG_F32, rows);
  if (!tgi_shape_flag(s, "nodx")) {
    a->dx = a->x;
  }
  if (!tgi_shape_flag(s, "nodgate")) {
    a->dgate = a->x;
  }
  if (!tgi_shape_flag(s, "nodweight")) {
    a->dweight = tg_tensor_1d(NULL, tgi_shape_flag(s, "dwf32") ? TG_F32 : a->weight.dtype, cols);
  }
}

void tgi_rms_norm_swiglu_bwd_cost(const tg_rms_norm_swiglu_bwd_args *a, tgi_cost *cost)
{
  cost->flops = 65.0 * (double)tgi_numel(&a->x);
}
