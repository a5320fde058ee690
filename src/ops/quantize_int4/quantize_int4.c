#include "ops/kernels.h"
#include "ops/shared/quantisation/group_rules.h"

void tgi_quantize_int4_fwd_check(tgi_call *call, const tg_quantize_int4_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
  tgi_want_group_size(call, a->group_size);
  TGI_WANT_SHAPE(call, a, q, rows, (cols + 1) / 2);
  TGI_WANT_GROUPS(call, a, rows, cols);
  call->empty = rows == 0 || cols == 0;
}
