#include "ops/kernels.h"
#include "ops/shared/gated/gated.h"

void tgi_swiglu_clamped_fwd_check(tgi_call *call, const tg_swiglu_clamped_fwd_args *a)
{
  tgi_want_gated_fwd(call, TGI_GATE_UP(a), &a->y, a->rounding);
  tgi_want_positive(call, "alpha", (double)a->alpha);
  tgi_want_positive(call, "limit", (double)a->limit);
}

void tgi_swiglu_clamped_bwd_check(tgi_call *call, const tg_swiglu_clamped_bwd_args *a)
{
  tgi_want_gated_bwd(call, &a->dy, TGI_GATE_UP(a), TGI_DGATE_UP(a));
  tgi_want_positive(call, "alpha", (double)a->alpha);
  tgi_want_positive(call, "limit", (double)a->limit);
}
