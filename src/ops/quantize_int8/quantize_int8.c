#include "ops/kernels.h"
#include "ops/quantize_int8/quant_groups.h"

static tgi_call check(const tg_context *ctx, const tg_quantize_int8_fwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, quantize_int8_fwd, a, sizing);
  if (call.status == TG_OK) {
    const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
    tgi_want_range(&call, "granularity", a->granularity, TG_QUANT_PER_TENSOR, TG_QUANT_PER_COLUMN);
    const int64_t groups = tgi_quant_groups(a->granularity, rows, cols);
    TGI_WANT_SHAPE(&call, a, q, rows, cols);
    TGI_WANT_SHAPE(&call, a, scale, groups);
    TGI_WANT_SHAPE(&call, a, zero_point, groups);
    call.empty = groups == 0; /* groups without elements have scales */
  }
  return call;
}

tg_status tg_quantize_int8_fwd_workspace(const tg_context *ctx,
                                         const tg_quantize_int8_fwd_args *args, size_t *bytes)
{
  tgi_call call = check(ctx, args, true);
  return TGI_SIZE(&call, quantize_int8_fwd, args, bytes);
}

tg_status tg_quantize_int8_fwd(tg_context *ctx, const tg_quantize_int8_fwd_args *args)
{
  tgi_call call = check(ctx, args, false);
  TGI_WANT_WORKSPACE(&call, quantize_int8_fwd, args);
  return TGI_RUN(&call, quantize_int8_fwd, args);
}
