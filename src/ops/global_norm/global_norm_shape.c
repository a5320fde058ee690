#include "ops/shape.h"

/* tN: N tensors (1); the first is ROWSxCOLS, the others smaller and ragged. mixed: every second
 * one is f32. */
const char tgi_global_norm_fwd_syntax[] = "ROWSxCOLS[_tN][_mixed][_noclip]";

void tgi_global_norm_fwd_shape(tgi_shape *s, tg_global_norm_fwd_args *a)
{
  const int64_t rows = tgi_shape_extent(s, 0), cols = tgi_shape_extent(s, 1);
  const int64_t n = tgi_shape_number(s, "t", 1);
  const bool mixed = tgi_shape_flag(s, "mixed");
  tg_tensor *list = tgi_shape_list(s, n);
  for (int64_t i = 0; list && i < n; i++) {
    const tg_dtype t = mixed && i % 2 ? TG_F32 : s->dtype;
    list[i] = i == 0 ? tg_tensor_2d(NULL, t, rows, cols) : tg_tensor_1d(NULL, t, cols / i);
  }
  a->tensors = list;
  a->num_tensors = n;
  a->norm = tg_tensor_1d(NULL, TG_F32, 1);
  if (!tgi_shape_flag(s, "noclip")) {
    a->clip = tg_tensor_1d(NULL, TG_F32, 1);
    a->max_norm = 1.0f;
  }
}

void tgi_global_norm_fwd_cost(const tg_global_norm_fwd_args *a, tgi_cost *cost)
{
  for (int64_t i = 0; i < a->num_tensors; i++) {
    cost->flops += 2.0 * (double)tgi_numel(&a->tensors[i]);
  }
}
