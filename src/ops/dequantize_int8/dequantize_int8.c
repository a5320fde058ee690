#include "ops/kernels.h"
#include "ops/shared/quantisation/quant_groups.h"

void tgi_dequantize_int8_fwd_check(tgi_call *call, const tg_dequantize_int8_fwd_args *a)
{
  const int64_t rows = a->q.shape[0], cols = a->q.shape[1];
  tgi_want_range(call, "granularity", a->granularity, TG_QUANT_PER_TENSOR, TG_QUANT_PER_COLUMN);
  const int64_t groups = tgi_quant_groups(a->granularity, rows, cols);
  TGI_WANT_SHAPE(call, a, scale, groups);
  TGI_WANT_SHAPE(call, a, zero_point, groups);
  TGI_WANT_SHAPE(call, a, x, rows, cols);
  call->empty = rows == 0 || cols == 0;
}
