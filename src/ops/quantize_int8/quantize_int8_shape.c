#include "ops/shape.h"
#include "ops/shared/quantisation/quant_groups.h"

/* Without a word: per row; symmetric. asym has i32 zero points, asymi8 i8. */
const char tgi_quantize_int8_fwd_syntax[] = "ROWSxCOLS[_tensor|_column][_asym|_asymi8]";

void tgi_quantize_int8_fwd_shape(tgi_shape *s, tg_quantize_int8_fwd_args *a)
{
  const int64_t rows = tgi_shape_extent(s, 0), cols = tgi_shape_extent(s, 1);
  a->granularity = tgi_shape_flag(s, "tensor")   ? TG_QUANT_PER_TENSOR
                   : tgi_shape_flag(s, "column") ? TG_QUANT_PER_COLUMN
                                                 : TG_QUANT_PER_ROW;
  const int64_t groups = tgi_quant_groups(a->granularity, rows, cols);
  a->x = tg_tensor_2d(NULL, s->dtype, rows, cols);
  a->q = tg_tensor_2d(NULL, TG_I8, rows, cols);
  a->scale = tg_tensor_1d(NULL, TG_F32, groups);
  if (tgi_shape_flag(s, "asym")) {
    a->zero_point = tg_tensor_1d(NULL, TG_I32, groups);
  } else if (tgi_shape_flag(s, "asymi8")) {
    a->zero_point = tg_tensor_1d(NULL, TG_I8, groups);
  }
}

/* Bounds of more than a row: x is read twice. */
void tgi_quantize_int8_fwd_cost(const tg_quantize_int8_fwd_args *a, tgi_cost *cost)
{
  cost->flops = 8.0 * (double)tgi_numel(&a->x);
  if (a->granularity != TG_QUANT_PER_ROW) {
    cost->read_bytes += (double)tgi_span_bytes(&a->x);
  }
}
