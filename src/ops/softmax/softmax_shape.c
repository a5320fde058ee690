#include "ops/shape.h"

#define SYNTAX "ROWSxCOLS[_scaled]"

const char tgi_softmax_fwd_syntax[] = SYNTAX;
const char tgi_softmax_bwd_syntax[] = SYNTAX;

static tg_tensor view(tgi_shape *s)
{
  return tg_tensor_2d(NULL, s->dtype, tgi_shape_extent(s, 0), tgi_shape_extent(s, 1));
}

/* scaled: as attention has it for heads of 64. */
static float scale(tgi_shape *s)
{
  return tgi_shape_flag(s, "scaled") ? 0.125f : 1.0f;
}

void tgi_softmax_fwd_shape(tgi_shape *s, tg_softmax_fwd_args *a)
{
  a->x = a->y = view(s);
  a->scale = scale(s);
}

/* Vector operations, an fma counted twice. */
void tgi_softmax_fwd_cost(const tg_softmax_fwd_args *a, tgi_cost *cost)
{
  cost->flops = 26.0 * (double)tgi_numel(&a->x);
}

void tgi_softmax_bwd_shape(tgi_shape *s, tg_softmax_bwd_args *a)
{
  a->dy = a->y = a->dx = view(s);
  a->scale = scale(s);
}

void tgi_softmax_bwd_cost(const tg_softmax_bwd_args *a, tgi_cost *cost)
{
  cost->flops = 5.0 * (double)tgi_numel(&a->y);
}
