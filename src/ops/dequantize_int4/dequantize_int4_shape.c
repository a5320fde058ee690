#include "ops/shape.h"
#include "ops/shared/quantisation/group_rules.h"

/* Without a word: groups of 32, symmetric, f32 scales. */
const char tgi_dequantize_int4_fwd_syntax[] = "ROWSxCOLS[_gSIZE][_asym][_sf16]";

void tgi_dequantize_int4_fwd_shape(tgi_shape *s, tg_dequantize_int4_fwd_args *a)
{
  const int64_t rows = tgi_shape_extent(s, 0), cols = tgi_shape_extent(s, 1);
  const tg_dtype scale = tgi_shape_flag(s, "sf16") ? TG_F16 : TG_F32;
  a->group_size = tgi_shape_number(s, "g", 32);
  const int64_t groups = a->group_size > 0 ? tgi_groups_of(cols, a->group_size) : 0;
  a->q = tg_tensor_2d(NULL, TG_U8, rows, (cols + 1) / 2);
  a->scale = tg_tensor_2d(NULL, scale, rows, groups);
  a->x = tg_tensor_2d(NULL, s->dtype, rows, cols);
  if (tgi_shape_flag(s, "asym")) {
    a->zero_point = tg_tensor_2d(NULL, TG_U8, rows, groups);
  }
}

void tgi_dequantize_int4_fwd_cost(const tg_dequantize_int4_fwd_args *a, tgi_cost *cost)
{
  cost->flops = 2.0 * (double)tgi_numel(&a->x);
}
