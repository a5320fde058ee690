/** The forward and the backward that a call in both directions stands for. The backward's lse is
 * absent where the call keeps none. */
#ifndef TGI_OPS_CROSS_ENTROPY_CALL_H
#define TGI_OPS_CROSS_ENTROPY_CALL_H

#include "ops/kernels.h"

/* Fields that forward and backward have. */
#define CROSS_ENTROPY_SHARED(a)                                                                    \
  .logits = (a)->logits, .targets = (a)->targets, .num_items = (a)->num_items, .lse = (a)->lse,    \
  .ignore_index = (a)->ignore_index, .num_items_in_batch = (a)->num_items_in_batch,                \
  .label_smoothing = (a)->label_smoothing, .z_loss = (a)->z_loss, .softcap = (a)->softcap,         \
  .reduction = (a)->reduction, .has_ignore_index = (a)->has_ignore_index

static inline tg_cross_entropy_fwd_args forward_of(const tg_cross_entropy_fwdbwd_args *a)
{
  return (tg_cross_entropy_fwd_args){CROSS_ENTROPY_SHARED(a),
                                     .loss = a->loss,
                                     .token_loss = a->token_loss,
                                     .log_prob = a->log_prob,
                                     .argmax = a->argmax,
                                     .workspace = a->workspace,
                                     .workspace_bytes = a->workspace_bytes};
}

static inline tg_cross_entropy_bwd_args backward_of(const tg_cross_entropy_fwdbwd_args *a)
{
  return (tg_cross_entropy_bwd_args){CROSS_ENTROPY_SHARED(a), .dloss = a->dloss,
                                     .dlogits = a->dlogits};
}

#endif
