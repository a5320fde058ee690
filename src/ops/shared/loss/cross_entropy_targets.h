/** Targets of the cross-entropy: range, ignored rows and what the sum is divided by. For the
 * kernels and references of cross_entropy and linear_cross_entropy. */
#ifndef TGI_OPS_CROSS_ENTROPY_TARGETS_H
#define TGI_OPS_CROSS_ENTROPY_TARGETS_H

#include "core/values/half.h"
#include "ops/kernels.h"

typedef struct target_rule {
  const char *op;
  const tg_tensor *targets, *num_items;
  int64_t vocab, ignore_index, num_items_in_batch;
  tg_reduction reduction;
  bool has_ignore_index;
} target_rule;

/** The rule of a forward's or backward's args. */
#define TARGET_RULE(name, a, classes)                                                              \
  {                                                                                                \
    .op = (name), .targets = &(a)->targets, .num_items = &(a)->num_items, .vocab = (classes),      \
    .ignore_index = (a)->ignore_index, .num_items_in_batch = (a)->num_items_in_batch,              \
    .reduction = (a)->reduction, .has_ignore_index = (a)->has_ignore_index                         \
  }

static inline bool is_ignored(const target_rule *r, int64_t target)
{
  return r->has_ignore_index && target == r->ignore_index;
}

/** OK, or BAD_ARGUMENT with a message that names the first target out of range. Counts the rows
 * that are not ignored. */
static inline tg_status check_targets(const tg_context *ctx, const target_rule *r, int64_t *counted)
{
  *counted = 0;
  for (int64_t i = 0; i < r->targets->shape[0]; i++) {
    const int64_t target = tgi_load_int(r->targets->data, r->targets->dtype, i);
    if (is_ignored(r, target)) {
      continue;
    }
    if (target < 0 || target >= r->vocab) {
      return tgi_report(ctx, TG_BAD_ARGUMENT, "%s: targets[%lld]: expected 0 to %lld, got %lld",
                        r->op, (long long)i, (long long)r->vocab - 1, (long long)target);
    }
    ++*counted;
  }
  return TG_OK;
}

/** n of the contract. */
static inline double divisor(const target_rule *r, int64_t counted)
{
  switch (r->reduction) {
  case TG_REDUCTION_MEAN:
    return (double)counted;
  case TG_REDUCTION_NUM_ITEMS:
    return tgi_present(r->num_items) ? tgi_load(r->num_items->data, r->num_items->dtype, 0)
                                     : (double)r->num_items_in_batch;
  default:
    return 1;
  }
}

#endif
