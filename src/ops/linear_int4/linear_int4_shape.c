#include "ops/shape.h"

const char tgi_linear_int4_fwd_syntax[] =
    "ROWSxINxOUT[_g32|_g64|_g128][_sf16][_zp][_bias][_bf32][_yf32]";

/* g: columns of a group (128). sf16: scales in f16. zp: with zero points. */
void tgi_linear_int4_fwd_shape(tgi_shape *s, tg_linear_int4_fwd_args *a)
{
  const int64_t rows = tgi_shape_extent(s, 0), in = tgi_shape_extent(s, 1);
  const int64_t out = tgi_shape_extent(s, 2);
  const bool bias_f32 = tgi_shape_flag(s, "bf32"), y_f32 = tgi_shape_flag(s, "yf32");
  tg_linear_int4_pack_source pack = {.weight = tg_tensor_2d(NULL, TG_U8, out, (in + 1) / 2),
                                     .in = in,
                                     .group_size = tgi_shape_number(s, "g", 128)};
  pack.scale.dtype = tgi_shape_flag(s, "sf16") ? TG_F16 : TG_F32;
  pack.zero_point.dtype = tgi_shape_flag(s, "zp") ? TG_U8 : TG_DTYPE_NONE;
  a->x = tg_tensor_2d(NULL, s->dtype, rows, in);
  a->weight = tg_tensor_1d(NULL, TG_U8, tg_linear_int4_packed_bytes(&pack));
  a->y = tg_tensor_2d(NULL, y_f32 ? TG_F32 : s->dtype, rows, out);
  if (tgi_shape_flag(s, "bias")) {
    a->bias = tg_tensor_1d(NULL, bias_f32 ? TG_F32 : s->dtype, out);
  }
}

void tgi_linear_int4_fwd_cost(const tg_linear_int4_fwd_args *a, tgi_cost *cost)
{
  cost->flops = 2.0 * (double)tgi_numel(&a->x) * (double)a->y.shape[1];
}
