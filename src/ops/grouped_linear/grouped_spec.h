/** Plans of experts' rows in the specs of grouped linear layers. */
#ifndef TGI_OPS_GROUPED_SPEC_H
#define TGI_OPS_GROUPED_SPEC_H

#include "ops/spec.h"

#include <stdlib.h>

/* The expert of a row; `experts`: none. */
static inline int64_t expert_of(const spec_case *c, int64_t experts, spec_rng *rng)
{
  if (spec_is(c, "one expert")) {
    return experts / 2;
  }
  if (spec_is(c, "all dropped")) {
    return experts;
  }
  if (spec_is(c, "dropped") || spec_is(c, "not finite")) {
    return spec_below(rng, experts + 2) < experts ? spec_below(rng, experts) : experts;
  }
  if (spec_is(c, "few experts")) { /* the first and the last one have no rows */
    return experts / 3 + spec_below(rng, 2);
  }
  return spec_below(rng, experts);
}

/** Few rows of many experts have different ones, as those of a token do. Offsets of `rows` random
 * rows, and slots in a random order. Returns how many experts have. */
static inline int64_t spec_fill_plan(tgi_shaped *shaped, const spec_case *c, int64_t rows,
                                     spec_rng *rng)
{
  const int64_t experts = tgi_shaped_tensor(shaped, "offsets")->shape[0] - 1;
  const tg_tensor *slot = tgi_shaped_tensor(shaped, "slot");
  int64_t *count = calloc((size_t)experts + 1, sizeof *count), first = 0;
  int64_t *order = calloc((size_t)rows + 1, sizeof *order);
  for (int64_t r = 0; r < rows; r++) { /* Fisher and Yates's shuffle */
    const int64_t other = spec_below(rng, r + 1);
    order[r] = order[other];
    order[other] = r;
    count[!c->special && 8 * rows <= experts ? r * experts / rows : expert_of(c, experts, rng)]++;
  }
  for (int64_t e = 0; e < experts; e++) {
    spec_set(shaped, "offsets", e, (double)first);
    first += count[e];
  }
  spec_set(shaped, "offsets", experts, (double)first);
  for (int64_t r = 0; r < rows && slot && tgi_present(slot);
       r++) { /* of no expert: not to be read */
    spec_set(shaped, "slot", r, r < first ? (double)order[r] : -7);
  }
  free(order);
  free(count);
  return first;
}

#endif
