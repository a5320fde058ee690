/* Plan of a mixture of experts, reference: one pass over all slots for each expert. */
#include "ops/moe_plan/plan_indices.h"

tg_status TGI_KERNEL(moe_plan_fwd)(const tg_context *ctx, const tg_moe_plan_fwd_args *a)
{
  const int64_t experts = a->offsets.shape[0] - 1, slots = a->slot.shape[0];
  const tg_status status = check_indices(ctx, a);
  int32_t *offsets = a->offsets.data, *slot = a->slot.data, *row = a->row.data;
  int32_t r = 0;
  for (int64_t e = 0; e <= experts && status == TG_OK; e++) {
    offsets[e] = r;
    for (int64_t s = 0; s < slots; s++) {
      if (slot_expert(a, s) == e) {
        slot[r] = (int32_t)s;
        row[s] = e < experts ? r : -1;
        r++;
      }
    }
  }
  return status;
}
