#include "ops/kernels.h"
#include "ops/linear_fp8/linear_fp8_packed.h"

static tgi_call check_fwd(const tg_context *ctx, const tg_linear_fp8_fwd_args *a, bool sizing)
{
  tgi_call call = TGI_BEGIN(ctx, linear_fp8_fwd, a, sizing);
  if (call.status == TG_OK) {
    const int64_t rows = a->x.shape[0], in = a->x.shape[1], out = a->y.shape[1];
    TGI_WANT_SHAPE(&call, a, weight, tg_linear_fp8_packed_bytes(out, in));
    TGI_WANT_SHAPE(&call, a, bias, out);
    TGI_WANT_DTYPE(&call, a, bias, tgi_like_or_f32(&a->x));
    TGI_WANT_SHAPE(&call, a, y, rows, out);
    TGI_WANT_DTYPE(&call, a, y, tgi_like_or_f32(&a->x));
    tgi_want_packed(&call, &a->weight, TGI_FP8_MAGIC, out, in);
    call.empty = rows == 0 || out == 0;
  }
  return call;
}

tg_status tg_linear_fp8_fwd_workspace(const tg_context *ctx, const tg_linear_fp8_fwd_args *args,
                                      size_t *bytes)
{
  tgi_call call = check_fwd(ctx, args, true);
  return TGI_SIZE(&call, linear_fp8_fwd, args, bytes);
}

tg_status tg_linear_fp8_fwd(tg_context *ctx, const tg_linear_fp8_fwd_args *args)
{
  tgi_call call = check_fwd(ctx, args, false);
  TGI_WANT_WORKSPACE(&call, linear_fp8_fwd, args);
  return TGI_RUN(&call, linear_fp8_fwd, args);
}
