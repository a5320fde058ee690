/** What a pass over a model computes and reads. */
#ifndef TGI_CLI_MODEL_COST_H
#define TGI_CLI_MODEL_COST_H

#include "tegula/model.h"

/** Weights in matrix products. */
typedef struct tgi_model_products {
  double body, head;
} tgi_model_products;

/** Counts every matrix but the position tables. The head is lm_head, or the token table if the
 * model has none; the token table counts nowhere else. */
tgi_model_products tgi_model_count_products(const tg_model *model);

/**
 * Bytes that a pass over one token reads, of `keys` keys on average: all weights but the tables
 * that it takes one row of, and keys and values of the dtype `cache` (TG_DTYPE_NONE: that of the
 * weights), in layers with a sliding window no more than that.
 */
double tgi_model_pass_bytes(const tg_model *model, double keys, tg_dtype cache);

#endif
