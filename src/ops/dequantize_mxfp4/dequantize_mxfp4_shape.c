#include "ops/shape.h"

const char tgi_dequantize_mxfp4_fwd_syntax[] = "ROWSxGROUPS";

void tgi_dequantize_mxfp4_fwd_shape(tgi_shape *s, tg_dequantize_mxfp4_fwd_args *a)
{
  const int64_t rows = tgi_shape_extent(s, 0), groups = tgi_shape_extent(s, 1);
  a->blocks = (tg_tensor){.dtype = TG_U8, .ndim = 3, .shape = {rows, groups, 16}};
  a->scales = tg_tensor_2d(NULL, TG_U8, rows, groups);
  a->x = tg_tensor_2d(NULL, s->dtype, rows, groups <= INT64_MAX / 32 ? 32 * groups : groups);
}

void tgi_dequantize_mxfp4_fwd_cost(const tg_dequantize_mxfp4_fwd_args *a, tgi_cost *cost)
{
  cost->flops = (double)tgi_numel(&a->x);
}
