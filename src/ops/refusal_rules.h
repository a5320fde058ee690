/** What several rules of refusal (spec_refusal) are made of. */
#ifndef TGI_OPS_REFUSAL_RULES_H
#define TGI_OPS_REFUSAL_RULES_H

#include "ops/spec.h"

/** Whether every row of a tensor begins at a multiple of `bytes`; its last axis is contiguous. */
static inline bool tgi_rows_begin_at(const tg_tensor *t, int64_t bytes)
{
  bool aligned = (uintptr_t)t->data % (uintptr_t)bytes == 0;
  for (int axis = 0; axis + 1 < t->ndim; axis++) {
    const int64_t step = tgi_stride(t, axis) * (int64_t)tg_dtype_bytes(t->dtype);
    aligned = aligned && (t->shape[axis] <= 1 || step % bytes == 0);
  }
  return aligned;
}

/** Likewise of a matrix whose rows are those of a batch. Of one row, too, the step counts: which
 * kernel runs it, and so its bits, must not depend on the number of rows. */
static inline bool tgi_any_rows_begin_at(const tg_tensor *t, int64_t bytes)
{
  return tgi_rows_begin_at(t, bytes) &&
         tgi_stride(t, 0) * (int64_t)tg_dtype_bytes(t->dtype) % bytes == 0;
}

#endif
