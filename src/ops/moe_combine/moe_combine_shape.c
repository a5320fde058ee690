#include "ops/shape.h"

/* One syntax for both directions. r: rows of y (those of all slots without); now: no weights,
 * nores: no residual, wf32: weights in f32, once: rounded once; nody, nodw: without these
 * gradients. */
#define SYNTAX "TOKENSxHIDDEN_kN[_rROWS][_now][_nores][_wf32][_once][_nody|_nodw]"

const char tgi_moe_combine_fwd_syntax[] = SYNTAX;
const char tgi_moe_combine_bwd_syntax[] = SYNTAX;

void tgi_moe_combine_fwd_shape(tgi_shape *s, tg_moe_combine_fwd_args *a)
{
  const int64_t tokens = tgi_shape_extent(s, 0), hidden = tgi_shape_extent(s, 1);
  const int64_t k = tgi_shape_i32(s, "k", 1);
  int64_t slots;
  if (__builtin_mul_overflow(tokens, k, &slots)) {
    slots = INT64_MAX; /* refused for its size */
  }
  const tg_dtype wide = tgi_shape_flag(s, "wf32") ? TG_F32 : s->dtype;
  *a = (tg_moe_combine_fwd_args){
      .row = tg_tensor_2d(NULL, TG_I32, tokens, k),
      .y = tg_tensor_2d(NULL, s->dtype, tgi_shape_number(s, "r", slots), hidden),
      .out = tg_tensor_2d(NULL, s->dtype, tokens, hidden),
      .rounding = tgi_shape_flag(s, "once") ? TG_ROUNDING_ONCE : TG_ROUNDING_HF,
  };
  if (!tgi_shape_flag(s, "now")) {
    a->weights = tg_tensor_2d(NULL, wide, tokens, k);
  }
  if (!tgi_shape_flag(s, "nores")) {
    a->residual = a->out;
  }
  (void)tgi_shape_flag(s, "nody"), (void)tgi_shape_flag(s, "nodw");
}

static double row_bytes(const tg_tensor *t)
{
  return (double)t->shape[1] * (double)tg_dtype_bytes(t->dtype);
}

/* Each slot reads its row, however many rows there are. */
void tgi_moe_combine_fwd_cost(const tg_moe_combine_fwd_args *a, tgi_cost *cost)
{
  const double slots = (double)tgi_numel(&a->row), rows = (double)a->y.shape[0];
  cost->read_bytes += (slots < rows ? slots - rows : 0) * row_bytes(&a->y);
  cost->flops = 2.0 * slots * (double)a->y.shape[1];
}

void tgi_moe_combine_bwd_shape(tgi_shape *s, tg_moe_combine_bwd_args *a)
{
  const bool nody = tgi_shape_flag(s, "nody"), nodw = tgi_shape_flag(s, "nodw");
  tg_moe_combine_fwd_args f = {.weights = {.data = NULL}};
  tgi_moe_combine_fwd_shape(s, &f);
  *a = (tg_moe_combine_bwd_args){.dout = f.out, .row = f.row, .weights = f.weights};
  if (!nody) {
    a->dy = f.y;
    a->slot = tg_tensor_1d(NULL, TG_I32, f.y.shape[0]);
  }
  if (!nodw && tgi_present(&f.weights)) {
    a->y = f.y;
    a->dweights = f.weights;
  }
}

void tgi_moe_combine_bwd_cost(const tg_moe_combine_bwd_args *a, tgi_cost *cost)
{
  const double elements = (double)tgi_numel(&a->row) * (double)a->dout.shape[1];
  cost->flops =
      (tgi_present(&a->dy) ? elements : 0) + (tgi_present(&a->dweights) ? 2 : 0) * elements;
}
