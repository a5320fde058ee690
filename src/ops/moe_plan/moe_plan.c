#include "ops/kernels.h"

void tgi_moe_plan_fwd_check(tgi_call *call, const tg_moe_plan_fwd_args *a)
{
  const int64_t tokens = a->indices.shape[0], k = a->indices.shape[1];
  const int64_t experts = a->offsets.shape[0] - 1;
  if (experts < 1 || experts >= INT32_MAX) {
    tgi_fail(call, TG_BAD_SHAPE, "offsets", "expected 2 to 2^31 - 1 elements, got %lld",
             (long long)experts + 1);
  }
  if (k > 0 && tokens > INT32_MAX / k) {
    tgi_fail(call, TG_BAD_SHAPE, "indices", "expected fewer than 2^31 of them, got [%lld, %lld]",
             (long long)tokens, (long long)k);
  }
  TGI_WANT_SHAPE(call, a, row, tokens, k);
  if (call->status == TG_OK) { /* the product does not overflow */
    TGI_WANT_SHAPE(call, a, slot, tokens * k);
  }
}
