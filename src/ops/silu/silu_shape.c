#include "ops/shape.h"

const char tgi_silu_fwd_syntax[] = "ROWSxCOLS";
const char tgi_silu_bwd_syntax[] = "ROWSxCOLS";

static tg_tensor view(tgi_shape *s)
{
  return tg_tensor_2d(NULL, s->dtype, tgi_shape_extent(s, 0), tgi_shape_extent(s, 1));
}

void tgi_silu_fwd_shape(tgi_shape *s, tg_silu_fwd_args *a)
{
  a->x = a->y = view(s);
}

/* Vector operations of cpu/silu_math.h, an fma counted twice. */
void tgi_silu_fwd_cost(const tg_silu_fwd_args *a, tgi_cost *cost)
{
  cost->flops = 26.0 * (double)tgi_numel(&a->x);
}

void tgi_silu_bwd_shape(tgi_shape *s, tg_silu_bwd_args *a)
{
  a->dy = a->x = a->dx = view(s);
}

void tgi_silu_bwd_cost(const tg_silu_bwd_args *a, tgi_cost *cost)
{
  cost->flops = 31.0 * (double)tgi_numel(&a->x);
}
