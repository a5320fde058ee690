#include "ops/shared/norms/rms_norm_checks.h"

void tgi_rms_norm_fwd_check(tgi_call *call, const tg_rms_norm_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
  tgi_rms_norm_check_weight(call, &a->x, &a->weight, a->weight_offset);
  TGI_WANT_SHAPE(call, a, y, rows, cols);
  TGI_WANT_DTYPE(call, a, y, TG_DTYPE_BIT(a->x.dtype) | TG_DTYPE_BIT(a->weight.dtype));
  TGI_WANT_SHAPE(call, a, rstd, rows);
  tgi_want_positive(call, "eps", a->eps);
  tgi_want_range(call, "policy", a->policy, TG_RMS_NORM_LLAMA, TG_RMS_NORM_GPT_OSS);
}

void tgi_rms_norm_bwd_check(tgi_call *call, const tg_rms_norm_bwd_args *a)
{
  const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
  tgi_rms_norm_check_weight(call, &a->x, &a->weight, a->weight_offset);
  TGI_WANT_SHAPE(call, a, dy, rows, cols);
  TGI_WANT_DTYPE(call, a, dy, TG_DTYPE_BIT(a->x.dtype) | TG_DTYPE_BIT(a->weight.dtype));
  TGI_WANT_SHAPE(call, a, rstd, rows);
  TGI_WANT_SHAPE(call, a, dx, rows, cols);
  TGI_WANT_DTYPE(call, a, dx, TG_DTYPE_BIT(a->x.dtype));
  TGI_WANT_SHAPE(call, a, dweight, cols);
  TGI_WANT_DTYPE(call, a, dweight, tgi_like_or_f32(&a->weight));
}
