#include "ops/shape.h"

/* tN: N tensors (1); the first is ROWSxCOLS, the others smaller and ragged. gf32: gradients in f32;
 * sf32: both states in f32; mixed: every second tensor of the params is f32. stepN: step (3).
 * eps: 0.05, so that it counts. nobeta: both betas 0; noeps: eps 0. */
const char tgi_adamw_step_syntax[] =
    "ROWSxCOLS[_tN][_gf32][_sf32][_mixed][_master][_clip][_scale][_nodecay][_stepN][_eps]"
    "[_nobeta][_noeps]";

static void fill_list(tg_tensor *list, int64_t n, tg_dtype dtype, tg_dtype second, int64_t rows,
                      int64_t cols)
{
  for (int64_t i = 0; list && i < n; i++) {
    const tg_dtype t = i % 2 ? second : dtype;
    list[i] = i == 0 ? tg_tensor_2d(NULL, t, rows, cols) : tg_tensor_1d(NULL, t, cols / i);
  }
}

void tgi_adamw_step_shape(tgi_shape *s, tg_adamw_step_args *a)
{
  const int64_t rows = tgi_shape_extent(s, 0), cols = tgi_shape_extent(s, 1);
  const int64_t n = tgi_shape_number(s, "t", 1);
  const tg_dtype grad = tgi_shape_flag(s, "gf32") ? TG_F32 : s->dtype;
  const tg_dtype state = tgi_shape_flag(s, "sf32") ? TG_F32 : s->dtype;
  const bool mixed = tgi_shape_flag(s, "mixed");
  tg_tensor *params = tgi_shape_list(s, n), *grads = tgi_shape_list(s, n);
  tg_tensor *exp_avg = tgi_shape_list(s, n), *exp_avg_sq = tgi_shape_list(s, n);
  fill_list(params, n, s->dtype, mixed ? TG_F32 : s->dtype, rows, cols);
  fill_list(grads, n, grad, grad, rows, cols);
  fill_list(exp_avg, n, state, mixed ? TG_F32 : state, rows, cols);
  fill_list(exp_avg_sq, n, state, state, rows, cols);
  *a = (tg_adamw_step_args){.params = params,
                            .grads = grads,
                            .exp_avg = exp_avg,
                            .exp_avg_sq = exp_avg_sq,
                            .num_tensors = n,
                            .step = tgi_shape_number(s, "step", 3),
                            .lr = 0.01,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .eps = tgi_shape_flag(s, "eps") ? 0.05 : 1e-8,
                            .weight_decay = tgi_shape_flag(s, "nodecay") ? 0 : 0.1};
  if (tgi_shape_flag(s, "nobeta")) {
    a->beta1 = a->beta2 = 0;
    a->allow_zero = true;
  }
  if (tgi_shape_flag(s, "noeps")) {
    a->eps = 0;
    a->allow_zero = true;
  }
  if (tgi_shape_flag(s, "master")) {
    tg_tensor *master = tgi_shape_list(s, n);
    fill_list(master, n, TG_F32, TG_F32, rows, cols);
    a->master = master;
  }
  if (tgi_shape_flag(s, "clip")) {
    a->clip = tg_tensor_1d(NULL, TG_F32, 1);
  }
  if (tgi_shape_flag(s, "scale")) {
    a->grad_scale = 0.25;
    a->has_grad_scale = true;
  }
}

void tgi_adamw_step_cost(const tg_adamw_step_args *a, tgi_cost *cost)
{
  for (int64_t i = 0; i < a->num_tensors; i++) {
    const double n = (double)tgi_numel(&a->params[i]);
    cost->flops += 15 * n;
    if (a->master) { /* params are written, not read */
      cost->read_bytes -= n * (double)tg_dtype_bytes(a->params[i].dtype);
    }
  }
}
