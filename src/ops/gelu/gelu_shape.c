#include "ops/shape.h"

#define SYNTAX "ROWSxCOLS[_erf]"

const char tgi_gelu_fwd_syntax[] = SYNTAX;
const char tgi_gelu_bwd_syntax[] = SYNTAX;

static tg_tensor view(tgi_shape *s)
{
  return tg_tensor_2d(NULL, s->dtype, tgi_shape_extent(s, 0), tgi_shape_extent(s, 1));
}

static tg_gelu_approximation form(tgi_shape *s)
{
  return tgi_shape_flag(s, "erf") ? TG_GELU_ERF : TG_GELU_TANH;
}

void tgi_gelu_fwd_shape(tgi_shape *s, tg_gelu_fwd_args *a)
{
  a->x = a->y = view(s);
  a->approximation = form(s);
}

/* Vector operations of cpu/gelu_math.h, an fma counted twice. */
void tgi_gelu_fwd_cost(const tg_gelu_fwd_args *a, tgi_cost *cost)
{
  cost->flops = (a->approximation == TG_GELU_ERF ? 40.0 : 28.0) * (double)tgi_numel(&a->x);
}

void tgi_gelu_bwd_shape(tgi_shape *s, tg_gelu_bwd_args *a)
{
  a->dy = a->x = a->dx = view(s);
  a->approximation = form(s);
}

void tgi_gelu_bwd_cost(const tg_gelu_bwd_args *a, tgi_cost *cost)
{
  cost->flops = (a->approximation == TG_GELU_ERF ? 45.0 : 35.0) * (double)tgi_numel(&a->x);
}
