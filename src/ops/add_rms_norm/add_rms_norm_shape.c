#include "ops/shape.h"

/* One syntax for both directions: a backward's case is also read by its forward. */
#define SYNTAX                                                                                     \
  "ROWSxCOLS[_gptoss][_offset][_wf32][_yf32][_norstd][_nodsum][_nodx][_nodweight][_dwf32]"

const char tgi_add_rms_norm_fwd_syntax[] = SYNTAX;
const char tgi_add_rms_norm_bwd_syntax[] = SYNTAX;

/* wf32: f32 weight with 16-bit x; yf32: y and dy in f32 too. */
static tg_dtype weight_dtype(tgi_shape *s)
{
  return tgi_shape_flag(s, "wf32") ? TG_F32 : s->dtype;
}

static tg_dtype output_dtype(tgi_shape *s)
{
  return tgi_shape_flag(s, "yf32") ? TG_F32 : s->dtype;
}

void tgi_add_rms_norm_fwd_shape(tgi_shape *s, tg_add_rms_norm_fwd_args *a)
{
  const int64_t rows = tgi_shape_extent(s, 0), cols = tgi_shape_extent(s, 1);
  a->x = a->residual = a->sum = tg_tensor_2d(NULL, s->dtype, rows, cols);
  a->weight = tg_tensor_1d(NULL, weight_dtype(s), cols);
  a->y = tg_tensor_2d(NULL, output_dtype(s), rows, cols);
  if (!tgi_shape_flag(s, "norstd")) {
    a->rstd = tg_tensor_1d(NULL, TG_F32, rows);
  }
  a->eps = 1e-6f;
  a->weight_offset = tgi_shape_flag(s, "offset") ? 1.0f : 0.0f;
  a->policy = tgi_shape_flag(s, "gptoss") ? TG_RMS_NORM_GPT_OSS : TG_RMS_NORM_LLAMA;
  (void)tgi_shape_flag(s, "nodsum"), (void)tgi_shape_flag(s, "nodx");
  (void)tgi_shape_flag(s, "nodweight"), (void)tgi_shape_flag(s, "dwf32");
}

void tgi_add_rms_norm_fwd_cost(const tg_add_rms_norm_fwd_args *a, tgi_cost *cost)
{
  cost->flops = 5.0 * (double)tgi_numel(&a->x);
}

void tgi_add_rms_norm_bwd_shape(tgi_shape *s, tg_add_rms_norm_bwd_args *a)
{
  const int64_t rows = tgi_shape_extent(s, 0), cols = tgi_shape_extent(s, 1);
  (void)tgi_shape_flag(s, "gptoss"), (void)tgi_shape_flag(s, "norstd");
  a->dy = tg_tensor_2d(NULL, output_dtype(s), rows, cols);
  a->sum = tg_tensor_2d(NULL, s->dtype, rows, cols);
  a->weight = tg_tensor_1d(NULL, weight_dtype(s), cols);
  a->rstd = tg_tensor_1d(NULL, TG_F32, rows);
  if (!tgi_shape_flag(s, "nodsum")) {
    a->dsum = a->sum;
  }
  if (!tgi_shape_flag(s, "nodx")) {
    a->dx = a->sum;
  }
  if (!tgi_shape_flag(s, "nodweight")) {
    a->dweight = tg_tensor_1d(NULL, tgi_shape_flag(s, "dwf32") ? TG_F32 : a->weight.dtype, cols);
  }
  a->weight_offset = tgi_shape_flag(s, "offset") ? 1.0f : 0.0f;
}

void tgi_add_rms_norm_bwd_cost(const tg_add_rms_norm_bwd_args *a, tgi_cost *cost)
{
  cost->flops = 11.0 * (double)tgi_numel(&a->sum);
}
