/** One struct for the three directions of linear_cross_entropy: the args of fwdbwd, which hold what
 * the others have. What a direction lacks is absent. */
#ifndef TGI_OPS_LINEAR_CROSS_ENTROPY_CALL_H
#define TGI_OPS_LINEAR_CROSS_ENTROPY_CALL_H

#include "core/values/half.h"
#include "ops/kernels.h"

typedef tg_linear_cross_entropy_fwdbwd_args lce_args;

/* Fields that forward and backward have. */
#define LCE_SHARED(a)                                                                              \
  .hidden = (a)->hidden, .weight = (a)->weight, .bias = (a)->bias, .targets = (a)->targets,        \
  .num_items = (a)->num_items, .lse = (a)->lse, .ignore_index = (a)->ignore_index,                 \
  .num_items_in_batch = (a)->num_items_in_batch, .chunk_rows = (a)->chunk_rows,                    \
  .chunk_cols = (a)->chunk_cols, .label_smoothing = (a)->label_smoothing, .z_loss = (a)->z_loss,   \
  .softcap = (a)->softcap, .reduction = (a)->reduction, .has_ignore_index = (a)->has_ignore_index, \
  .workspace = (a)->workspace, .workspace_bytes = (a)->workspace_bytes

static inline lce_args lce_forward(const tg_linear_cross_entropy_fwd_args *a)
{
  return (lce_args){LCE_SHARED(a), .loss = a->loss, .token_loss = a->token_loss,
                    .log_prob = a->log_prob, .argmax = a->argmax};
}

static inline lce_args lce_backward(const tg_linear_cross_entropy_bwd_args *a)
{
  return (lce_args){LCE_SHARED(a),         .dloss = a->dloss, .dhidden = a->dhidden,
                    .dweight = a->dweight, .dbias = a->dbias, .overwrite = a->overwrite};
}

static inline bool lce_wants_loss(const lce_args *a)
{
  return tgi_present(&a->loss);
}

static inline bool lce_wants_gradients(const lce_args *a)
{
  return tgi_present(&a->dhidden) || tgi_present(&a->dweight) || tgi_present(&a->dbias);
}

/** Gradient of the loss of row `i`, before it is divided by n. */
static inline double lce_upstream(const lce_args *a, int64_t i)
{
  const int64_t at = a->reduction == TG_REDUCTION_NONE ? i : 0;
  return tgi_present(&a->dloss) ? tgi_load(a->dloss.data, a->dloss.dtype, at) : 1;
}

#endif
