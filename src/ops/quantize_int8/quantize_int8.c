#include "ops/kernels.h"
#include "ops/shared/quantisation/quant_groups.h"

void tgi_quantize_int8_fwd_check(tgi_call *call, const tg_quantize_int8_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
  tgi_want_range(call, "granularity", a->granularity, TG_QUANT_PER_TENSOR, TG_QUANT_PER_COLUMN);
  const int64_t groups = tgi_quant_groups(a->granularity, rows, cols);
  TGI_WANT_SHAPE(call, a, q, rows, cols);
  TGI_WANT_SHAPE(call, a, scale, groups);
  TGI_WANT_SHAPE(call, a, zero_point, groups);
  call->empty = groups == 0; /* groups without elements have scales */
}
