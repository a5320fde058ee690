/** Facts about the scalars of a cross-entropy: for the checks of cross_entropy and of
 * linear_cross_entropy. */
#ifndef TGI_OPS_LOSS_FACTS_H
#define TGI_OPS_LOSS_FACTS_H

#include "ops/kernels.h"

typedef struct loss_facts {
  const tg_tensor *num_items;
  int64_t num_items_in_batch;
  float label_smoothing, z_loss, softcap;
  tg_reduction reduction;
} loss_facts;

/** Those of any direction's args. */
#define LOSS_FACTS(a)                                                                              \
  {                                                                                                \
    &(a)->num_items, (a)->num_items_in_batch, (a)->label_smoothing, (a)->z_loss, (a)->softcap,     \
        (a)->reduction                                                                             \
  }

static inline void check_loss_scalars(tgi_call *call, const loss_facts *c)
{
  tgi_want_range(call, "reduction", c->reduction, TG_REDUCTION_NONE, TG_REDUCTION_NUM_ITEMS);
  if (!(c->label_smoothing >= 0 && c->label_smoothing <= 1)) {
    tgi_fail(call, TG_BAD_ARGUMENT, "label_smoothing", "expected 0 to 1, got %g",
             (double)c->label_smoothing);
  }
  tgi_want_finite(call, "z_loss", c->z_loss);
  if (c->z_loss < 0) {
    tgi_fail(call, TG_BAD_ARGUMENT, "z_loss", "expected 0 or more, got %g", (double)c->z_loss);
  }
  tgi_want_finite(call, "softcap", c->softcap);
  if (c->softcap < 0) {
    tgi_fail(call, TG_BAD_ARGUMENT, "softcap", "expected 0 (none) or more, got %g",
             (double)c->softcap);
  }
}

static inline void check_num_items(tgi_call *call, const loss_facts *c)
{
  if (tgi_present(c->num_items) && tgi_numel(c->num_items) != 1) {
    tgi_fail(call, TG_BAD_SHAPE, "num_items", "expected 1 element, got %lld",
             (long long)tgi_numel(c->num_items));
  }
  if (c->reduction != TG_REDUCTION_NUM_ITEMS) {
    if (tgi_present(c->num_items)) {
      tgi_fail(call, TG_BAD_ARGUMENT, "num_items",
               "expected none without TG_REDUCTION_NUM_ITEMS, got some");
    }
    tgi_want_range(call, "num_items_in_batch", c->num_items_in_batch, 0, 0);
  } else if (tgi_present(c->num_items)) {
    tgi_want_range(call, "num_items_in_batch", c->num_items_in_batch, 0, 0);
  } else {
    tgi_want_range(call, "num_items_in_batch", c->num_items_in_batch, 1, INT64_MAX);
  }
}

static inline void check_loss_facts(tgi_call *call, const loss_facts *c)
{
  check_loss_scalars(call, c);
  check_num_items(call, c);
}

#endif
