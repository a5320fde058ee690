#include "ops/shape.h"

/* One syntax for both directions: a backward's case is also read by its forward. */
#define SYNTAX                                                                                     \
  "ROWSxCOLS[_wf32][_yf32][_nobias][_nostats][_residual][_nodx][_nodweight][_nodbias][_dwf32]"

const char tgi_layer_norm_fwd_syntax[] = SYNTAX;
const char tgi_layer_norm_bwd_syntax[] = SYNTAX;

/* wf32: f32 weight and bias with 16-bit x; yf32: y and dy in f32 too. */
static tg_dtype weight_dtype(tgi_shape *s)
{
  return tgi_shape_flag(s, "wf32") ? TG_F32 : s->dtype;
}

static tg_dtype output_dtype(tgi_shape *s)
{
  return tgi_shape_flag(s, "yf32") ? TG_F32 : s->dtype;
}

void tgi_layer_norm_fwd_shape(tgi_shape *s, tg_layer_norm_fwd_args *a)
{
  const int64_t rows = tgi_shape_extent(s, 0), cols = tgi_shape_extent(s, 1);
  a->x = tg_tensor_2d(NULL, s->dtype, rows, cols);
  a->weight = tg_tensor_1d(NULL, weight_dtype(s), cols);
  if (!tgi_shape_flag(s, "nobias")) {
    a->bias = tg_tensor_1d(NULL, weight_dtype(s), cols);
  }
  a->y = tg_tensor_2d(NULL, output_dtype(s), rows, cols);
  if (!tgi_shape_flag(s, "nostats")) {
    a->mean = a->rstd = tg_tensor_1d(NULL, TG_F32, rows);
  }
  a->eps = 1e-5f;
  (void)tgi_shape_flag(s, "nodx"), (void)tgi_shape_flag(s, "nodweight");
  (void)tgi_shape_flag(s, "residual");
  (void)tgi_shape_flag(s, "nodbias"), (void)tgi_shape_flag(s, "dwf32");
}

void tgi_layer_norm_fwd_cost(const tg_layer_norm_fwd_args *a, tgi_cost *cost)
{
  cost->flops = 9.0 * (double)tgi_numel(&a->x);
}

void tgi_layer_norm_bwd_shape(tgi_shape *s, tg_layer_norm_bwd_args *a)
{
  const int64_t rows = tgi_shape_extent(s, 0), cols = tgi_shape_extent(s, 1);
  const tg_dtype weight = weight_dtype(s);
  const tg_dtype gradient = tgi_shape_flag(s, "dwf32") ? TG_F32 : weight;
  (void)tgi_shape_flag(s, "nobias"), (void)tgi_shape_flag(s, "nostats");
  a->dy = tg_tensor_2d(NULL, output_dtype(s), rows, cols);
  a->x = tg_tensor_2d(NULL, s->dtype, rows, cols);
  a->weight = tg_tensor_1d(NULL, weight, cols);
  a->mean = a->rstd = tg_tensor_1d(NULL, TG_F32, rows);
  if (tgi_shape_flag(s, "residual")) {
    a->dresidual = tg_tensor_2d(NULL, s->dtype, rows, cols);
  }
  if (!tgi_shape_flag(s, "nodx")) {
    a->dx = tg_tensor_2d(NULL, s->dtype, rows, cols);
  }
  if (!tgi_shape_flag(s, "nodweight")) {
    a->dweight = tg_tensor_1d(NULL, gradient, cols);
  }
  if (!tgi_shape_flag(s, "nodbias")) {
    a->dbias = tg_tensor_1d(NULL, gradient, cols);
  }
}

void tgi_layer_norm_bwd_cost(const tg_layer_norm_bwd_args *a, tgi_cost *cost)
{
  cost->flops = 15.0 * (double)tgi_numel(&a->x);
}
