#include "ops/kernels.h"
#include "ops/quantize_int4/group_rules.h"

static tgi_call check(const tg_context *ctx, const tg_quantize_int4_fwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, quantize_int4_fwd, a, sizing);
  if (call.status == TG_OK) {
    const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
    tgi_want_group_size(&call, a->group_size);
    TGI_WANT_SHAPE(&call, a, q, rows, (cols + 1) / 2);
    TGI_WANT_GROUPS(&call, a, rows, cols);
    call.empty = rows == 0 || cols == 0;
  }
  return call;
}

tg_status tg_quantize_int4_fwd_workspace(const tg_context *ctx,
                                         const tg_quantize_int4_fwd_args *args, size_t *bytes)
{
  tgi_call call = check(ctx, args, true);
  return TGI_SIZE(&call, quantize_int4_fwd, args, bytes);
}

tg_status tg_quantize_int4_fwd(tg_context *ctx, const tg_quantize_int4_fwd_args *args)
{
  tgi_call call = check(ctx, args, false);
  return TGI_RUN(&call, quantize_int4_fwd, args);
}
