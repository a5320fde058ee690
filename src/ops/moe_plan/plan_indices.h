/** Indices of the plan: which expert a slot has. For its reference and CPU kernels. */
#ifndef TGI_OPS_PLAN_INDICES_H
#define TGI_OPS_PLAN_INDICES_H

#include "core/values/half.h"
#include "ops/kernels.h"

/** The expert of slot s; `experts`: dropped. */
static inline int64_t slot_expert(const tg_moe_plan_fwd_args *a, int64_t s)
{
  const int64_t k = a->indices.shape[1];
  return tgi_load_int(tgi_row(&a->indices, s / k), a->indices.dtype, s % k);
}

/** OK, or BAD_ARGUMENT with a message that names the first index outside 0 .. experts. */
static inline tg_status check_indices(const tg_context *ctx, const tg_moe_plan_fwd_args *a)
{
  const int64_t experts = a->offsets.shape[0] - 1, k = a->indices.shape[1];
  for (int64_t s = 0; s < a->slot.shape[0]; s++) {
    const int64_t e = slot_expert(a, s);
    if (e < 0 || e > experts) {
      return tgi_report(ctx, TG_BAD_ARGUMENT,
                        "moe_plan_fwd: indices[%lld, %lld]: expected 0 to %lld, got %lld",
                        (long long)(s / k), (long long)(s % k), (long long)experts, (long long)e);
    }
  }
  return TG_OK;
}

#endif
