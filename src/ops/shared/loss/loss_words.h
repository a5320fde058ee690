/** The words of a shape string that say how the rows' losses are taken and reduced: for the shapes
 * of cross_entropy and of linear_cross_entropy. */
#ifndef TGI_OPS_LOSS_WORDS_H
#define TGI_OPS_LOSS_WORDS_H

#include "ops/shape.h"

/** Without a word for it: mean. ignoreN: ignore_index N; ignore alone: -100. */
#define LOSS_WORDS_SYNTAX                                                                          \
  "[_none|_sum|_items|_itemsi32|_itemsi64|_itemsf32][_ignore|_ignoreN][_smooth][_z][_cap][_i32]"

/** Slots that loss and gradient have. */
typedef struct loss_words {
  int64_t ignore_index, num_items_in_batch;
  tg_tensor targets, num_items;
  float label_smoothing, z_loss, softcap;
  tg_reduction reduction;
  bool has_ignore_index;
} loss_words;

static inline tg_dtype items_dtype(tgi_shape *s)
{
  return tgi_shape_flag(s, "itemsi32")   ? TG_I32
         : tgi_shape_flag(s, "itemsi64") ? TG_I64
         : tgi_shape_flag(s, "itemsf32") ? TG_F32
                                         : TG_DTYPE_NONE;
}

static inline loss_words read_loss_words(tgi_shape *s, int64_t rows)
{
  loss_words w = {0};
  const tg_dtype items = items_dtype(s);
  const bool host = tgi_shape_flag(s, "items");
  w.targets = tg_tensor_1d(NULL, tgi_shape_flag(s, "i32") ? TG_I32 : TG_I64, rows);
  w.reduction = tgi_shape_flag(s, "none")  ? TG_REDUCTION_NONE
                : tgi_shape_flag(s, "sum") ? TG_REDUCTION_SUM
                : host || items            ? TG_REDUCTION_NUM_ITEMS
                                           : TG_REDUCTION_MEAN;
  w.num_items_in_batch = host ? 7 : 0;
  if (items) {
    w.num_items = tg_tensor_1d(NULL, items, 1);
  }
  w.ignore_index = tgi_shape_number(s, "ignore", -1);
  w.has_ignore_index = w.ignore_index >= 0;
  if (tgi_shape_flag(s, "ignore")) {
    w.ignore_index = -100;
    w.has_ignore_index = true;
  }
  w.label_smoothing = tgi_shape_flag(s, "smooth") ? 0.1f : 0.0f;
  w.z_loss = tgi_shape_flag(s, "z") ? 0.01f : 0.0f;
  w.softcap = tgi_shape_flag(s, "cap") ? 3.0f : 0.0f;
  return w;
}

#endif
