#include "ops/shape.h"

/* One syntax for both directions: a backward's case is also read by its forward. */
#define SYNTAX                                                                                     \
  "ROWSxINxOUT[_gelu|_gelutanh][_bias][_residual][_save][_wf32][_xf32][_yf32][_bf32][_dwf32]"      \
  "[_nodx][_nodweight][_nodbias][_overwrite][_tf32]"

const char tgi_linear_fwd_syntax[] = SYNTAX;
const char tgi_linear_bwd_syntax[] = SYNTAX;

/* gelu is the erf form. save: the forward stores the preactivation. The f32 flags set that tensor
 * (xf32: x and y, bf32: bias and dbias, dwf32: dweight) to f32 beside 16-bit others. tf32:
 * allow_tf32. */
typedef struct words {
  int64_t rows, in, out;
  tg_dtype x, y, weight, bias, dweight;
  tg_activation activation;
  bool has_bias, residual, save, nodx, nodweight, nodbias, overwrite, tf32;
} words;

static tg_dtype or_f32(tgi_shape *s, const char *word, tg_dtype dtype)
{
  return tgi_shape_flag(s, word) ? TG_F32 : dtype;
}

static words read_words(tgi_shape *s)
{
  words w = {
      .rows = tgi_shape_extent(s, 0), .in = tgi_shape_extent(s, 1), .out = tgi_shape_extent(s, 2)};
  w.x = or_f32(s, "xf32", s->dtype);
  w.y = or_f32(s, "yf32", w.x);
  w.weight = or_f32(s, "wf32", s->dtype);
  w.bias = or_f32(s, "bf32", w.weight);
  w.dweight = or_f32(s, "dwf32", w.weight);
  w.activation = tgi_shape_flag(s, "gelu") ? TG_ACTIVATION_GELU_ERF : TG_ACTIVATION_NONE;
  if (tgi_shape_flag(s, "gelutanh")) {
    w.activation = TG_ACTIVATION_GELU_TANH;
  }
  w.has_bias = tgi_shape_flag(s, "bias");
  w.residual = tgi_shape_flag(s, "residual");
  w.save = tgi_shape_flag(s, "save");
  w.nodx = tgi_shape_flag(s, "nodx");
  w.nodweight = tgi_shape_flag(s, "nodweight");
  w.nodbias = tgi_shape_flag(s, "nodbias");
  w.overwrite = tgi_shape_flag(s, "overwrite");
  w.tf32 = tgi_shape_flag(s, "tf32");
  return w;
}

void tgi_linear_fwd_shape(tgi_shape *s, tg_linear_fwd_args *a)
{
  const words w = read_words(s);
  a->x = tg_tensor_2d(NULL, w.x, w.rows, w.in);
  a->weight = tg_tensor_2d(NULL, w.weight, w.out, w.in);
  a->y = tg_tensor_2d(NULL, w.y, w.rows, w.out);
  if (w.has_bias) {
    a->bias = tg_tensor_1d(NULL, w.bias, w.out);
  }
  if (w.residual) {
    a->residual = a->y;
  }
  if (w.save) {
    a->preactivation = a->y;
  }
  a->activation = w.activation;
  a->allow_tf32 = w.tf32;
}

void tgi_linear_fwd_cost(const tg_linear_fwd_args *a, tgi_cost *cost)
{
  cost->flops = 2.0 * (double)tgi_numel(&a->x) * (double)a->weight.shape[0];
}

void tgi_linear_bwd_shape(tgi_shape *s, tg_linear_bwd_args *a)
{
  const words w = read_words(s);
  a->dy = tg_tensor_2d(NULL, w.y, w.rows, w.out);
  a->x = tg_tensor_2d(NULL, w.x, w.rows, w.in);
  a->weight = tg_tensor_2d(NULL, w.weight, w.out, w.in);
  if (w.activation != TG_ACTIVATION_NONE) {
    a->preactivation = a->dy;
  }
  if (!w.nodx) {
    a->dx = a->x;
  }
  if (!w.nodweight) {
    a->dweight = tg_tensor_2d(NULL, w.dweight, w.out, w.in);
  }
  if (!w.nodbias) {
    a->dbias = tg_tensor_1d(NULL, w.bias, w.out);
  }
  a->activation = w.activation;
  a->overwrite = w.overwrite;
  a->allow_tf32 = w.tf32;
}

void tgi_linear_bwd_cost(const tg_linear_bwd_args *a, tgi_cost *cost)
{
  const double product = 2.0 * (double)tgi_numel(&a->x) * (double)a->weight.shape[0];
  cost->flops = product * (tgi_present(&a->dx) + tgi_present(&a->dweight));
  /* Only dx needs the weight, only dweight x. */
  cost->read_bytes -= tgi_present(&a->dx) ? 0 : tgi_cost_bytes(&a->weight);
  cost->read_bytes -= tgi_present(&a->dweight) ? 0 : tgi_cost_bytes(&a->x);
}
