/** Helpers for tensor views that have passed checks.h. */
#ifndef TGI_CORE_TENSOR_VIEW_H
#define TGI_CORE_TENSOR_VIEW_H

#include "tegula/tensor.h"
#include <stdbool.h>

static inline bool tgi_present(const tg_tensor *t)
{
  return t->dtype != TG_DTYPE_NONE;
}

int64_t tgi_numel(const tg_tensor *t);

/** Stride of `axis` in elements, with the all-zero shorthand resolved. */
int64_t tgi_stride(const tg_tensor *t, int axis);

/** True if the elements lie without gaps in row-major order (axes of extent 1 do not count). */
bool tgi_is_dense(const tg_tensor *t);

/** Bytes from `data` to the end of the last element; 0 for an empty view. */
size_t tgi_span_bytes(const tg_tensor *t);

/** Address of row `i` of a view of rank 2. */
static inline void *tgi_row(const tg_tensor *t, int64_t i)
{
  return (char *)t->data + i * tgi_stride(t, 0) * (int64_t)tg_dtype_bytes(t->dtype);
}

#endif
