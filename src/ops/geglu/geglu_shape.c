#include "ops/shared/gated/gated_shape.h"

const char tgi_geglu_fwd_syntax[] = TGI_GATED_SYNTAX "[_erf]";
const char tgi_geglu_bwd_syntax[] = TGI_GATED_SYNTAX "[_erf]";

void tgi_geglu_fwd_shape(tgi_shape *s, tg_geglu_fwd_args *a)
{
  TGI_GATED_FWD_SHAPE(s, a);
  a->approximation = tgi_shape_flag(s, "erf") ? TG_GELU_ERF : TG_GELU_TANH;
}

/* Vector operations of the forward and the backward, an fma counted twice. */
void tgi_geglu_fwd_cost(const tg_geglu_fwd_args *a, tgi_cost *cost)
{
  cost->flops = (a->approximation == TG_GELU_ERF ? 41.0 : 29.0) * (double)tgi_numel(&a->y);
}

void tgi_geglu_bwd_shape(tgi_shape *s, tg_geglu_bwd_args *a)
{
  TGI_GATED_BWD_SHAPE(s, a);
  a->approximation = tgi_shape_flag(s, "erf") ? TG_GELU_ERF : TG_GELU_TANH;
}

void tgi_geglu_bwd_cost(const tg_geglu_bwd_args *a, tgi_cost *cost)
{
  cost->flops = (a->approximation == TG_GELU_ERF ? 87.0 : 41.0) * (double)tgi_numel(&a->dy);
}
