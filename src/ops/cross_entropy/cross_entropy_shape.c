#include "ops/shape.h"

/* One syntax for both directions: a backward's case is also read by its forward. Without a word
 * for it: mean. ignoreN: ignore_index N; ignore alone: -100. */
#define SYNTAX                                                                                     \
  "ROWSxVOCAB[_none|_sum|_items|_itemsi32|_itemsi64|_itemsf32][_ignore|_ignoreN][_smooth][_z]"     \
  "[_cap][_i32][_all][_nodloss]"

const char tgi_cross_entropy_fwd_syntax[] = SYNTAX;
const char tgi_cross_entropy_bwd_syntax[] = SYNTAX;

/* What both directions have. */
typedef struct common {
  int64_t rows, vocab, ignore_index, num_items_in_batch;
  tg_tensor targets, num_items;
  float label_smoothing, z_loss, softcap;
  tg_reduction reduction;
  bool has_ignore_index;
} common;

static tg_dtype items_dtype(tgi_shape *s)
{
  return tgi_shape_flag(s, "itemsi32")   ? TG_I32
         : tgi_shape_flag(s, "itemsi64") ? TG_I64
         : tgi_shape_flag(s, "itemsf32") ? TG_F32
                                         : TG_DTYPE_NONE;
}

static common read_common(tgi_shape *s)
{
  common c = {.rows = tgi_shape_extent(s, 0), .vocab = tgi_shape_extent(s, 1)};
  const tg_dtype items = items_dtype(s);
  const bool host = tgi_shape_flag(s, "items");
  c.targets = tg_tensor_1d(NULL, tgi_shape_flag(s, "i32") ? TG_I32 : TG_I64, c.rows);
  c.reduction = tgi_shape_flag(s, "none")  ? TG_REDUCTION_NONE
                : tgi_shape_flag(s, "sum") ? TG_REDUCTION_SUM
                : host || items            ? TG_REDUCTION_NUM_ITEMS
                                           : TG_REDUCTION_MEAN;
  c.num_items_in_batch = host ? 7 : 0;
  if (items) {
    c.num_items = tg_tensor_1d(NULL, items, 1);
  }
  c.ignore_index = tgi_shape_number(s, "ignore", -1);
  c.has_ignore_index = c.ignore_index >= 0;
  if (tgi_shape_flag(s, "ignore")) {
    c.ignore_index = -100;
    c.has_ignore_index = true;
  }
  c.label_smoothing = tgi_shape_flag(s, "smooth") ? 0.1f : 0.0f;
  c.z_loss = tgi_shape_flag(s, "z") ? 0.01f : 0.0f;
  c.softcap = tgi_shape_flag(s, "cap") ? 3.0f : 0.0f;
  return c;
}

void tgi_cross_entropy_fwd_shape(tgi_shape *s, tg_cross_entropy_fwd_args *a)
{
  const common c = read_common(s);
  *a = (tg_cross_entropy_fwd_args){
      .logits = tg_tensor_2d(NULL, s->dtype, c.rows, c.vocab),
      .targets = c.targets,
      .num_items = c.num_items,
      .loss = tg_tensor_1d(NULL, TG_F32, c.reduction == TG_REDUCTION_NONE ? c.rows : 1),
      .ignore_index = c.ignore_index,
      .num_items_in_batch = c.num_items_in_batch,
      .label_smoothing = c.label_smoothing,
      .z_loss = c.z_loss,
      .softcap = c.softcap,
      .reduction = c.reduction,
      .has_ignore_index = c.has_ignore_index,
  };
  if (tgi_shape_flag(s, "all")) {
    a->token_loss = a->log_prob = a->lse = tg_tensor_1d(NULL, TG_F32, c.rows);
    a->argmax = tg_tensor_1d(NULL, c.targets.dtype, c.rows);
  }
  (void)tgi_shape_flag(s, "nodloss");
}

void tgi_cross_entropy_fwd_cost(const tg_cross_entropy_fwd_args *a, tgi_cost *cost)
{
  cost->flops = 20.0 * (double)tgi_numel(&a->logits);
}

void tgi_cross_entropy_bwd_shape(tgi_shape *s, tg_cross_entropy_bwd_args *a)
{
  const common c = read_common(s);
  *a = (tg_cross_entropy_bwd_args){
      .logits = tg_tensor_2d(NULL, s->dtype, c.rows, c.vocab),
      .targets = c.targets,
      .num_items = c.num_items,
      .lse = tg_tensor_1d(NULL, TG_F32, c.rows),
      .dlogits = tg_tensor_2d(NULL, s->dtype, c.rows, c.vocab),
      .ignore_index = c.ignore_index,
      .num_items_in_batch = c.num_items_in_batch,
      .label_smoothing = c.label_smoothing,
      .z_loss = c.z_loss,
      .softcap = c.softcap,
      .reduction = c.reduction,
      .has_ignore_index = c.has_ignore_index,
  };
  if (!tgi_shape_flag(s, "nodloss")) {
    a->dloss = tg_tensor_1d(NULL, TG_F32, c.reduction == TG_REDUCTION_NONE ? c.rows : 1);
  }
  (void)tgi_shape_flag(s, "all");
}

void tgi_cross_entropy_bwd_cost(const tg_cross_entropy_bwd_args *a, tgi_cost *cost)
{
  cost->flops = 20.0 * (double)tgi_numel(&a->logits);
}
