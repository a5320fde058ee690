#include "ops/shared/loss/loss_words.h"

/* One syntax for all directions: a backward's case is also read by its forward. The f32 words set
 * that tensor (wf32: weight, bf32: bias and dbias, dwf32: dweight) to f32 beside 16-bit others; rN
 * and cN are the chunk's rows and columns. */
#define SYNTAX                                                                                     \
  "ROWSxHIDDENxVOCAB" LOSS_WORDS_SYNTAX "[_bias][_wf32][_bf32][_dwf32][_rN][_cN][_all][_nodloss]"  \
  "[_nodhidden][_nodweight][_nodbias][_overwrite]"

const char tgi_linear_cross_entropy_fwd_syntax[] = SYNTAX;
const char tgi_linear_cross_entropy_bwd_syntax[] = SYNTAX;
const char tgi_linear_cross_entropy_fwdbwd_syntax[] = SYNTAX;

static tg_dtype or_f32(tgi_shape *s, const char *word, tg_dtype dtype)
{
  return tgi_shape_flag(s, word) ? TG_F32 : dtype;
}

/* The largest direction; the others leave something away. Every word is read. */
static tg_linear_cross_entropy_fwdbwd_args read_all(tgi_shape *s)
{
  const int64_t rows = tgi_shape_extent(s, 0), size = tgi_shape_extent(s, 1);
  const int64_t vocab = tgi_shape_extent(s, 2);
  const loss_words w = read_loss_words(s, rows);
  const tg_dtype weight = or_f32(s, "wf32", s->dtype), bias = or_f32(s, "bf32", weight);
  const tg_dtype dweight = or_f32(s, "dwf32", weight);
  tg_linear_cross_entropy_fwdbwd_args a = {
      .hidden = tg_tensor_2d(NULL, s->dtype, rows, size),
      .weight = tg_tensor_2d(NULL, weight, vocab, size),
      .targets = w.targets,
      .num_items = w.num_items,
      .loss = tg_tensor_1d(NULL, TG_F32, w.reduction == TG_REDUCTION_NONE ? rows : 1),
      .lse = tg_tensor_1d(NULL, TG_F32, rows),
      .ignore_index = w.ignore_index,
      .num_items_in_batch = w.num_items_in_batch,
      .chunk_rows = tgi_shape_number(s, "r", 0),
      .chunk_cols = tgi_shape_number(s, "c", 0),
      .label_smoothing = w.label_smoothing,
      .z_loss = w.z_loss,
      .softcap = w.softcap,
      .reduction = w.reduction,
      .has_ignore_index = w.has_ignore_index,
      .overwrite = tgi_shape_flag(s, "overwrite"),
  };
  if (tgi_shape_flag(s, "bias")) {
    a.bias = tg_tensor_1d(NULL, bias, vocab);
  }
  if (tgi_shape_flag(s, "all")) {
    a.token_loss = a.log_prob = a.lse;
    a.argmax = tg_tensor_1d(NULL, w.targets.dtype, rows);
  }
  if (!tgi_shape_flag(s, "nodloss")) {
    a.dloss = a.loss;
  }
  if (!tgi_shape_flag(s, "nodhidden")) {
    a.dhidden = a.hidden;
  }
  if (!tgi_shape_flag(s, "nodweight")) {
    a.dweight = tg_tensor_2d(NULL, dweight, vocab, size);
  }
  if (!tgi_shape_flag(s, "nodbias")) {
    a.dbias = tg_tensor_1d(NULL, bias, vocab);
  }
  return a;
}

#define SHARED(all)                                                                                \
  .hidden = (all).hidden, .weight = (all).weight, .bias = (all).bias, .targets = (all).targets,    \
  .num_items = (all).num_items, .ignore_index = (all).ignore_index,                                \
  .num_items_in_batch = (all).num_items_in_batch, .chunk_rows = (all).chunk_rows,                  \
  .chunk_cols = (all).chunk_cols, .label_smoothing = (all).label_smoothing,                        \
  .z_loss = (all).z_loss, .softcap = (all).softcap, .reduction = (all).reduction,                  \
  .has_ignore_index = (all).has_ignore_index

void tgi_linear_cross_entropy_fwd_shape(tgi_shape *s, tg_linear_cross_entropy_fwd_args *a)
{
  const tg_linear_cross_entropy_fwdbwd_args all = read_all(s);
  *a = (tg_linear_cross_entropy_fwd_args){SHARED(all), .loss = all.loss,
                                          .token_loss = all.token_loss, .log_prob = all.log_prob,
                                          .argmax = all.argmax};
  a->lse = all.token_loss;
}

void tgi_linear_cross_entropy_bwd_shape(tgi_shape *s, tg_linear_cross_entropy_bwd_args *a)
{
  const tg_linear_cross_entropy_fwdbwd_args all = read_all(s);
  *a = (tg_linear_cross_entropy_bwd_args){SHARED(all),
                                          .dloss = all.dloss,
                                          .lse = all.lse,
                                          .dhidden = all.dhidden,
                                          .dweight = all.dweight,
                                          .dbias = all.dbias,
                                          .overwrite = all.overwrite};
}

void tgi_linear_cross_entropy_fwdbwd_shape(tgi_shape *s, tg_linear_cross_entropy_fwdbwd_args *a)
{
  *a = read_all(s);
}

/* One of the products. */
static double product_flops(const tg_tensor *hidden, const tg_tensor *weight)
{
  return 2.0 * (double)tgi_numel(hidden) * (double)weight->shape[0];
}

void tgi_linear_cross_entropy_fwd_cost(const tg_linear_cross_entropy_fwd_args *a, tgi_cost *cost)
{
  cost->flops = product_flops(&a->hidden, &a->weight);
}

void tgi_linear_cross_entropy_bwd_cost(const tg_linear_cross_entropy_bwd_args *a, tgi_cost *cost)
{
  const int products = 1 + tgi_present(&a->dhidden) + tgi_present(&a->dweight);
  cost->flops = products * product_flops(&a->hidden, &a->weight);
}

void tgi_linear_cross_entropy_fwdbwd_cost(const tg_linear_cross_entropy_fwdbwd_args *a,
                                          tgi_cost *cost)
{
  const int products = 1 + tgi_present(&a->dhidden) + tgi_present(&a->dweight);
  cost->flops = products * product_flops(&a->hidden, &a->weight);
}
