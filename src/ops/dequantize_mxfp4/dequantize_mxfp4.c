#include "ops/kernels.h"

void tgi_dequantize_mxfp4_fwd_check(tgi_call *call, const tg_dequantize_mxfp4_fwd_args *a)
{
  const int64_t rows = a->scales.shape[0], groups = a->scales.shape[1];
  if (groups > INT64_MAX / 32) {
    tgi_fail(call, TG_BAD_SHAPE, "scales", "expected fewer than 2^58 groups, got %lld",
             (long long)groups);
    return;
  }
  TGI_WANT_SHAPE(call, a, blocks, rows, groups, 16);
  TGI_WANT_SHAPE(call, a, x, rows, 32 * groups);
  call->empty = rows == 0 || groups == 0;
}
