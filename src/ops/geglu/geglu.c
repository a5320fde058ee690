#include "ops/kernels.h"
#include "ops/shared/gated/gated.h"

void tgi_geglu_fwd_check(tgi_call *call, const tg_geglu_fwd_args *a)
{
  tgi_want_gated_fwd(call, TGI_GATE_UP(a), &a->y, a->rounding);
  tgi_want_range(call, "approximation", a->approximation, TG_GELU_TANH, TG_GELU_ERF);
}

void tgi_geglu_bwd_check(tgi_call *call, const tg_geglu_bwd_args *a)
{
  tgi_want_gated_bwd(call, &a->dy, TGI_GATE_UP(a), TGI_DGATE_UP(a));
  tgi_want_range(call, "approximation", a->approximation, TG_GELU_TANH, TG_GELU_ERF);
}
