#include "ops/grouped_linear/grouped_activation_shape.h"

/* k: each of x's ROWS has N slots, which gather; without: no slots. infirst: weight is
 * [experts, in, out]. The f32 flags are those of linear: xf32 sets x and y, bf32 bias and dbias.
 * swiglu, clamped: an activation, of halves unless interleaved; pre: with its preactivation. */
#define SYNTAX                                                                                     \
  "ROWSxINxOUT_eEXPERTS[_kN][_infirst][_bias][_wf32][_xf32][_yf32][_bf32][_dwf32]"                 \
  "[_nodx][_nodweight][_nodbias][_overwrite]"

const char tgi_grouped_linear_fwd_syntax[] = SYNTAX "[_swiglu|_clamped][_interleaved][_pre]";
const char tgi_grouped_linear_bwd_syntax[] = SYNTAX;

typedef struct words {
  int64_t x_rows, rows, in, out, experts, k;
  tg_dtype x, y, weight, bias, dweight;
  bool in_first, has_bias, nodx, nodweight, nodbias, overwrite;
} words;

static tg_dtype or_f32(tgi_shape *s, const char *word, tg_dtype dtype)
{
  return tgi_shape_flag(s, word) ? TG_F32 : dtype;
}

static words read_words(tgi_shape *s)
{
  words w = {.x_rows = tgi_shape_extent(s, 0),
             .in = tgi_shape_extent(s, 1),
             .out = tgi_shape_extent(s, 2),
             .experts = tgi_shape_i32(s, "e", 1),
             .k = tgi_shape_i32(s, "k", 0)};
  if (__builtin_mul_overflow(w.x_rows, w.k > 0 ? w.k : 1, &w.rows)) {
    w.rows = INT64_MAX; /* refused for its size */
  }
  w.x = or_f32(s, "xf32", s->dtype);
  w.y = or_f32(s, "yf32", w.x);
  w.weight = or_f32(s, "wf32", s->dtype);
  w.bias = or_f32(s, "bf32", w.weight);
  w.dweight = or_f32(s, "dwf32", w.weight);
  w.in_first = tgi_shape_flag(s, "infirst");
  w.has_bias = tgi_shape_flag(s, "bias");
  w.nodx = tgi_shape_flag(s, "nodx");
  w.nodweight = tgi_shape_flag(s, "nodweight");
  w.nodbias = tgi_shape_flag(s, "nodbias");
  w.overwrite = tgi_shape_flag(s, "overwrite");
  return w;
}

static tg_tensor weight_of(const words *w, tg_dtype dtype)
{
  return (tg_tensor){
      .dtype = dtype,
      .ndim = 3,
      .shape = {w->experts, w->in_first ? w->in : w->out, w->in_first ? w->out : w->in}};
}

void tgi_grouped_linear_fwd_shape(tgi_shape *s, tg_grouped_linear_fwd_args *a)
{
  const words w = read_words(s);
  *a = (tg_grouped_linear_fwd_args){
      .x = tg_tensor_2d(NULL, w.x, w.x_rows, w.in),
      .weight = weight_of(&w, w.weight),
      .offsets = tg_tensor_1d(NULL, TG_I32, w.experts + 1),
      .y = tg_tensor_2d(NULL, w.y, w.rows, w.out),
      .slots_per_row = w.k,
      .in_first = w.in_first,
  };
  if (w.has_bias) {
    a->bias = tg_tensor_2d(NULL, w.bias, w.experts, w.out);
  }
  if (w.k > 0) {
    a->slot = tg_tensor_1d(NULL, TG_I32, w.rows);
  }
  tgi_read_activation(s, (tgi_activation_slots){&a->activation, &a->packing, &a->alpha, &a->limit,
                                                &a->preactivation, &a->y});
}

void tgi_grouped_linear_fwd_cost(const tg_grouped_linear_fwd_args *a, tgi_cost *cost)
{
  const double out = (double)a->weight.shape[a->in_first ? 2 : 1];
  cost->flops = 2.0 * (double)a->y.shape[0] * out * (double)a->x.shape[1];
}

void tgi_grouped_linear_bwd_shape(tgi_shape *s, tg_grouped_linear_bwd_args *a)
{
  const words w = read_words(s);
  *a = (tg_grouped_linear_bwd_args){
      .dy = tg_tensor_2d(NULL, w.y, w.rows, w.out),
      .x = tg_tensor_2d(NULL, w.x, w.x_rows, w.in),
      .weight = weight_of(&w, w.weight),
      .offsets = tg_tensor_1d(NULL, TG_I32, w.experts + 1),
      .slots_per_row = w.k,
      .in_first = w.in_first,
      .overwrite = w.overwrite,
  };
  if (w.k > 0) {
    a->slot = tg_tensor_1d(NULL, TG_I32, w.rows);
  }
  if (!w.nodx) {
    a->dx = tg_tensor_2d(NULL, w.x, w.rows, w.in);
  }
  if (!w.nodweight) {
    a->dweight = weight_of(&w, w.dweight);
  }
  if (!w.nodbias) {
    a->dbias = tg_tensor_2d(NULL, w.bias, w.experts, w.out);
  }
}

void tgi_grouped_linear_bwd_cost(const tg_grouped_linear_bwd_args *a, tgi_cost *cost)
{
  const double product = 2.0 * (double)tgi_numel(&a->dy) * (double)a->x.shape[1];
  cost->flops = product * (tgi_present(&a->dx) + tgi_present(&a->dweight));
  /* Only dx needs the weight, only dweight x. */
  cost->read_bytes -= tgi_present(&a->dx) ? 0 : tgi_cost_bytes(&a->weight);
  cost->read_bytes -= tgi_present(&a->dweight) ? 0 : tgi_cost_bytes(&a->x);
}
