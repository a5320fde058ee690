#include "ops/shape.h"

/* One syntax for both directions. clamped: the activation is swiglu_clamped, else swiglu;
 * interleaved: gate and up are neighbours, else halves; bias: both biases. f32 flags: xf32 sets x
 * and y, wf32 the parameters, bf32 the biases, sf32 the weights of slots, dwf32 the parameters'
 * gradients, dsf32 those of the weights. res: a residual; nopre: without the pre-activation;
 * nod..: without these gradients; dpre: with that of the pre-activation. */
#define SYNTAX                                                                                     \
  "TOKENSxHIDDENxINTER_eEXPERTS_kN[_infirst][_clamped][_interleaved][_bias|_upbias|_downbias]"     \
  "[_xf32][_wf32][_bf32][_sf32][_dwf32][_dsf32][_res][_nopre]"                                     \
  "[_nodx][_nodweights][_nodgateup][_noddown][_nodbias][_dpre][_overwrite]"

const char tgi_moe_mlp_fwd_syntax[] = SYNTAX;
const char tgi_moe_mlp_bwd_syntax[] = SYNTAX;

typedef struct words {
  int64_t tokens, hidden, inter, experts, k, rows;
  tg_dtype x, parameters, bias, scores, dparameters, dscores;
  bool in_first, clamped, interleaved, up_bias, down_bias, residual;
  bool nopre, nodx, nodweights, nodgateup, noddown, nodbias, dpre, overwrite;
} words;

static tg_dtype or_f32(tgi_shape *s, const char *word, tg_dtype dtype)
{
  return tgi_shape_flag(s, word) ? TG_F32 : dtype;
}

static void read_flags(tgi_shape *s, words *w)
{
  const bool both = tgi_shape_flag(s, "bias");
  w->up_bias = tgi_shape_flag(s, "upbias") || both;
  w->down_bias = tgi_shape_flag(s, "downbias") || both;
  w->in_first = tgi_shape_flag(s, "infirst");
  w->clamped = tgi_shape_flag(s, "clamped");
  w->interleaved = tgi_shape_flag(s, "interleaved");
  w->residual = tgi_shape_flag(s, "res");
  w->nopre = tgi_shape_flag(s, "nopre");
  w->nodx = tgi_shape_flag(s, "nodx");
  w->nodweights = tgi_shape_flag(s, "nodweights");
  w->nodgateup = tgi_shape_flag(s, "nodgateup");
  w->noddown = tgi_shape_flag(s, "noddown");
  w->nodbias = tgi_shape_flag(s, "nodbias");
  w->dpre = tgi_shape_flag(s, "dpre");
  w->overwrite = tgi_shape_flag(s, "overwrite");
}

static words read_words(tgi_shape *s)
{
  words w = {.tokens = tgi_shape_extent(s, 0),
             .hidden = tgi_shape_extent(s, 1),
             .inter = tgi_shape_extent(s, 2),
             .experts = tgi_shape_i32(s, "e", 1),
             .k = tgi_shape_i32(s, "k", 1)};
  if (__builtin_mul_overflow(w.tokens, w.k, &w.rows)) {
    w.rows = INT64_MAX; /* refused for its size */
  }
  w.x = or_f32(s, "xf32", s->dtype);
  w.parameters = or_f32(s, "wf32", s->dtype);
  w.bias = or_f32(s, "bf32", w.parameters);
  w.scores = or_f32(s, "sf32", w.x);
  w.dparameters = or_f32(s, "dwf32", w.parameters);
  w.dscores = or_f32(s, "dsf32", w.scores);
  read_flags(s, &w);
  return w;
}

static tg_tensor matrix(const words *w, tg_dtype dtype, int64_t out, int64_t in)
{
  return (tg_tensor){.dtype = dtype,
                     .ndim = 3,
                     .shape = {w->experts, w->in_first ? in : out, w->in_first ? out : in}};
}

static tg_gate_up_packing packing_of(const words *w)
{
  return w->interleaved ? TG_GATE_UP_INTERLEAVED : TG_GATE_UP_HALVES;
}

void tgi_moe_mlp_fwd_shape(tgi_shape *s, tg_moe_mlp_fwd_args *a)
{
  const words w = read_words(s);
  *a = (tg_moe_mlp_fwd_args){
      .x = tg_tensor_2d(NULL, w.x, w.tokens, w.hidden),
      .weights = tg_tensor_2d(NULL, w.scores, w.tokens, w.k),
      .offsets = tg_tensor_1d(NULL, TG_I32, w.experts + 1),
      .slot = tg_tensor_1d(NULL, TG_I32, w.rows),
      .row = tg_tensor_2d(NULL, TG_I32, w.tokens, w.k),
      .gate_up = matrix(&w, w.parameters, 2 * w.inter, w.hidden),
      .down = matrix(&w, w.parameters, w.hidden, w.inter),
      .y = tg_tensor_2d(NULL, w.x, w.tokens, w.hidden),
      .activation = w.clamped ? TG_GATED_SWIGLU_CLAMPED : TG_GATED_SWIGLU,
      .alpha = w.clamped ? 1.702f : 0,
      .limit = w.clamped ? 7 : 0,
      .packing = packing_of(&w),
      .in_first = w.in_first,
  };
  if (w.up_bias) {
    a->gate_up_bias = tg_tensor_2d(NULL, w.bias, w.experts, 2 * w.inter);
  }
  if (w.down_bias) {
    a->down_bias = tg_tensor_2d(NULL, w.bias, w.experts, w.hidden);
  }
  if (w.residual) {
    a->residual = a->y;
  }
  if (!w.nopre) {
    a->preactivation = tg_tensor_2d(NULL, w.x, w.rows, 2 * w.inter);
  }
}

/* Of one product of all rows with matrices of hidden by inter. */
static double product(const tg_tensor *slot, const tg_tensor *down)
{
  return 2.0 * (double)slot->shape[0] * (double)down->shape[1] * (double)down->shape[2];
}

void tgi_moe_mlp_fwd_cost(const tg_moe_mlp_fwd_args *a, tgi_cost *cost)
{
  cost->flops = 3 * product(&a->slot, &a->down);
}

static void shape_gradients(const words *w, tg_moe_mlp_bwd_args *a)
{
  if (!w->nodx) {
    a->dx = a->x;
  }
  if (!w->nodweights) {
    a->dweights = tg_tensor_2d(NULL, w->dscores, w->tokens, w->k);
  }
  if (!w->nodgateup) {
    a->dgate_up = matrix(w, w->dparameters, 2 * w->inter, w->hidden);
  }
  if (!w->noddown) {
    a->ddown = matrix(w, w->dparameters, w->hidden, w->inter);
  }
  if (w->up_bias && !w->nodbias) {
    a->dgate_up_bias = tg_tensor_2d(NULL, w->bias, w->experts, 2 * w->inter);
  }
  if (w->down_bias && !w->nodbias) {
    a->ddown_bias = tg_tensor_2d(NULL, w->bias, w->experts, w->hidden);
  }
  if (w->dpre) {
    a->dpreactivation = a->preactivation;
  }
}

void tgi_moe_mlp_bwd_shape(tgi_shape *s, tg_moe_mlp_bwd_args *a)
{
  const words w = read_words(s);
  *a = (tg_moe_mlp_bwd_args){
      .dy = tg_tensor_2d(NULL, w.x, w.tokens, w.hidden),
      .x = tg_tensor_2d(NULL, w.x, w.tokens, w.hidden),
      .weights = tg_tensor_2d(NULL, w.scores, w.tokens, w.k),
      .offsets = tg_tensor_1d(NULL, TG_I32, w.experts + 1),
      .slot = tg_tensor_1d(NULL, TG_I32, w.rows),
      .row = tg_tensor_2d(NULL, TG_I32, w.tokens, w.k),
      .gate_up = matrix(&w, w.parameters, 2 * w.inter, w.hidden),
      .down = matrix(&w, w.parameters, w.hidden, w.inter),
      .preactivation = tg_tensor_2d(NULL, w.x, w.rows, 2 * w.inter),
      .activation = w.clamped ? TG_GATED_SWIGLU_CLAMPED : TG_GATED_SWIGLU,
      .alpha = w.clamped ? 1.702f : 0,
      .limit = w.clamped ? 7 : 0,
      .packing = packing_of(&w),
      .in_first = w.in_first,
      .overwrite = w.overwrite,
  };
  if (w.down_bias) {
    a->down_bias = tg_tensor_2d(NULL, w.bias, w.experts, w.hidden);
  }
  shape_gradients(&w, a);
}

/* dy through down wherever the pre-activation's gradient is needed; a product each for ddown, and
 * two each for dx and dgate_up. */
void tgi_moe_mlp_bwd_cost(const tg_moe_mlp_bwd_args *a, tgi_cost *cost)
{
  const bool back = tgi_present(&a->dx) || tgi_present(&a->dweights) || tgi_present(&a->dgate_up) ||
                    tgi_present(&a->dgate_up_bias) || tgi_present(&a->dpreactivation);
  const int products =
      back + tgi_present(&a->ddown) + 2 * tgi_present(&a->dx) + 2 * tgi_present(&a->dgate_up);
  cost->flops = products * product(&a->slot, &a->down);
  cost->read_bytes -= tgi_present(&a->dx) ? 0 : tgi_cost_bytes(&a->gate_up);
  cost->read_bytes -= tgi_present(&a->dgate_up) ? 0 : tgi_cost_bytes(&a->x);
}
