#include "ops/shape.h"

const char tgi_moe_plan_fwd_syntax[] = "TOKENSxEXPERTS_kN[_i64]";

void tgi_moe_plan_fwd_shape(tgi_shape *s, tg_moe_plan_fwd_args *a)
{
  const int64_t tokens = tgi_shape_extent(s, 0), experts = tgi_shape_extent(s, 1);
  const int64_t k = tgi_shape_i32(s, "k", 1);
  int64_t slots;
  if (__builtin_mul_overflow(tokens, k, &slots)) {
    slots = INT64_MAX; /* refused for its size */
  }
  *a = (tg_moe_plan_fwd_args){
      .indices = tg_tensor_2d(NULL, tgi_shape_flag(s, "i64") ? TG_I64 : TG_I32, tokens, k),
      .offsets = tg_tensor_1d(NULL, TG_I32, experts + 1),
      .slot = tg_tensor_1d(NULL, TG_I32, slots),
      .row = tg_tensor_2d(NULL, TG_I32, tokens, k),
  };
}

void tgi_moe_plan_fwd_cost(const tg_moe_plan_fwd_args *a, tgi_cost *cost)
{
  (void)a;
  cost->flops = 0;
}
