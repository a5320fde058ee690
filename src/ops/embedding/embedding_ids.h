/** Ids of the embedding: their range, and the position of a token. For its kernels and reference.
 */
#ifndef TGI_OPS_EMBEDDING_IDS_H
#define TGI_OPS_EMBEDDING_IDS_H

#include "core/values/half.h"
#include "ops/kernels.h"

/** OK, or BAD_ARGUMENT with a message that names the first id outside 0 .. rows - 1. */
static inline tg_status check_ids(const tg_context *ctx, const char *op, const char *argument,
                                  const tg_tensor *ids, int64_t rows)
{
  for (int64_t i = 0; i < ids->shape[0]; i++) {
    const int64_t id = tgi_load_int(ids->data, ids->dtype, i);
    if (id < 0 || id >= rows) {
      return tgi_report(ctx, TG_BAD_ARGUMENT, "%s: %s[%lld]: expected 0 to %lld, got %lld", op,
                        argument, (long long)i, (long long)rows - 1, (long long)id);
    }
  }
  return TG_OK;
}

/** p[i] of the contract. */
static inline int64_t token_position(const tg_tensor *position_ids, int64_t seq_len,
                                     int64_t position_offset, int64_t i)
{
  if (tgi_present(position_ids)) {
    return tgi_load_int(position_ids->data, position_ids->dtype, i);
  }
  return position_offset + (seq_len > 0 ? i % seq_len : i);
}

#endif
