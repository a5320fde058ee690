#include "ops/kernels.h"
#include "ops/quantize_int8/quant_groups.h"

static tgi_call check(const tg_context *ctx, const tg_dequantize_int8_fwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, dequantize_int8_fwd, a, sizing);
  if (call.status == TG_OK) {
    const int64_t rows = a->q.shape[0], cols = a->q.shape[1];
    tgi_want_range(&call, "granularity", a->granularity, TG_QUANT_PER_TENSOR, TG_QUANT_PER_COLUMN);
    const int64_t groups = tgi_quant_groups(a->granularity, rows, cols);
    TGI_WANT_SHAPE(&call, a, scale, groups);
    TGI_WANT_SHAPE(&call, a, zero_point, groups);
    TGI_WANT_SHAPE(&call, a, x, rows, cols);
    call.empty = rows == 0 || cols == 0;
  }
  return call;
}

tg_status tg_dequantize_int8_fwd_workspace(const tg_context *ctx,
                                           const tg_dequantize_int8_fwd_args *args, size_t *bytes)
{
  tgi_call call = check(ctx, args, true);
  return TGI_SIZE(&call, dequantize_int8_fwd, args, bytes);
}

tg_status tg_dequantize_int8_fwd(tg_context *ctx, const tg_dequantize_int8_fwd_args *args)
{
  tgi_call call = check(ctx, args, false);
  return TGI_RUN(&call, dequantize_int8_fwd, args);
}
