/** What the specs of cross_entropy and of linear_cross_entropy share: targets, and scalars that
 * must be refused. */
#ifndef TGI_OPS_LOSS_CASES_H
#define TGI_OPS_LOSS_CASES_H

#include "core/values/half.h"
#include "ops/spec.h"

#define LOSS_BAD_SCALARS                                                                           \
  {"reduction", 0, TG_BAD_ARGUMENT}, {"reduction", 5, TG_BAD_ARGUMENT},                            \
      {"label_smoothing", -0.1, TG_BAD_ARGUMENT}, {"label_smoothing", 1.1, TG_BAD_ARGUMENT},       \
      {"label_smoothing", NAN, TG_BAD_ARGUMENT}, {"z_loss", -1, TG_BAD_ARGUMENT},                  \
      {"z_loss", INFINITY, TG_BAD_ARGUMENT}, {"softcap", -1, TG_BAD_ARGUMENT},                     \
      {"softcap", NAN, TG_BAD_ARGUMENT},                                                           \
  {                                                                                                \
    "num_items_in_batch", -1, TG_BAD_ARGUMENT                                                      \
  }

/** Random targets; where the case has an ignore_index, every third row carries it. */
static inline void fill_targets(tgi_shaped *shaped, int64_t vocab, bool ignores,
                                int64_t ignore_index, spec_rng *rng)
{
  const tg_tensor *targets = tgi_shaped_tensor(shaped, "targets");
  const tg_tensor *num_items = tgi_shaped_tensor(shaped, "num_items");
  for (int64_t i = 0; i < targets->shape[0]; i++) {
    const int64_t target = spec_below(rng, vocab);
    spec_set(shaped, "targets", i, (double)(ignores && i % 3 == 1 ? ignore_index : target));
  }
  if (tgi_present(num_items)) {
    spec_set(shaped, "num_items", 0, 5);
  }
}

#endif
