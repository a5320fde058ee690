/** What the router's reference and CPU kernels share: groups of tokens, the mask, indices. */
#ifndef TGI_OPS_ROUTER_ROWS_H
#define TGI_OPS_ROUTER_ROWS_H

#include "core/values/half.h"
#include "ops/kernels.h"

enum { kRouterGroup = 64 }; /* tokens whose counts and probabilities are summed first */

static inline bool token_is_counted(const tg_tensor *mask, int64_t t)
{
  return !tgi_present(mask) || tgi_load_int(mask->data, mask->dtype, t) != 0;
}

static inline int64_t expert_at(const tg_tensor *indices, int64_t t, int64_t j)
{
  return tgi_load_int(tgi_row(indices, t), indices->dtype, j);
}

static inline void put_expert(const tg_tensor *indices, int64_t t, int64_t j, int64_t e)
{
  void *row = tgi_row(indices, t);
  if (indices->dtype == TG_I32) {
    ((int32_t *)row)[j] = (int32_t)e;
  } else {
    ((int64_t *)row)[j] = e;
  }
}

/** OK, or BAD_ARGUMENT with a message that names the first index that is no expert. */
static inline tg_status check_experts(const tg_context *ctx, const tg_topk_router_bwd_args *a)
{
  const int64_t experts = a->logits.shape[1];
  for (int64_t t = 0; t < a->indices.shape[0]; t++) {
    for (int64_t j = 0; j < a->indices.shape[1]; j++) {
      const int64_t e = expert_at(&a->indices, t, j);
      if (e < 0 || e >= experts) {
        return tgi_report(ctx, TG_BAD_ARGUMENT,
                          "topk_router_bwd: indices[%lld, %lld]: expected 0 to %lld, got %lld",
                          (long long)t, (long long)j, (long long)experts - 1, (long long)e);
      }
    }
  }
  return TG_OK;
}

#endif
