#include "ops/shared/gated/gated_shape.h"

const char tgi_swiglu_fwd_syntax[] = TGI_GATED_SYNTAX;
const char tgi_swiglu_bwd_syntax[] = TGI_GATED_SYNTAX;

void tgi_swiglu_fwd_shape(tgi_shape *s, tg_swiglu_fwd_args *a)
{
  TGI_GATED_FWD_SHAPE(s, a);
}

/* Vector operations of the forward and the backward, an fma counted twice. */
void tgi_swiglu_fwd_cost(const tg_swiglu_fwd_args *a, tgi_cost *cost)
{
  cost->flops = 27.0 * (double)tgi_numel(&a->y);
}

void tgi_swiglu_bwd_shape(tgi_shape *s, tg_swiglu_bwd_args *a)
{
  TGI_GATED_BWD_SHAPE(s, a);
}

void tgi_swiglu_bwd_cost(const tg_swiglu_bwd_args *a, tgi_cost *cost)
{
  cost->flops = 35.0 * (double)tgi_numel(&a->dy);
}
