#include "ops/shared/gated/gated_shape.h"

const char tgi_swiglu_clamped_fwd_syntax[] = TGI_GATED_SYNTAX;
const char tgi_swiglu_clamped_bwd_syntax[] = TGI_GATED_SYNTAX;

void tgi_swiglu_clamped_fwd_shape(tgi_shape *s, tg_swiglu_clamped_fwd_args *a)
{
  TGI_GATED_FWD_SHAPE(s, a);
  a->alpha = 1.702f;
  a->limit = 7;
}

/* Vector operations of the forward and the backward, an fma counted twice. */
void tgi_swiglu_clamped_fwd_cost(const tg_swiglu_clamped_fwd_args *a, tgi_cost *cost)
{
  cost->flops = 33.0 * (double)tgi_numel(&a->y);
}

void tgi_swiglu_clamped_bwd_shape(tgi_shape *s, tg_swiglu_clamped_bwd_args *a)
{
  TGI_GATED_BWD_SHAPE(s, a);
  a->alpha = 1.702f;
  a->limit = 7;
}

void tgi_swiglu_clamped_bwd_cost(const tg_swiglu_clamped_bwd_args *a, tgi_cost *cost)
{
  cost->flops = 42.0 * (double)tgi_numel(&a->dy);
}
