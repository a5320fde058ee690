/**
 * A memory plan: buffers laid one after the other in one block. Laying out runs twice, by the same
 * code: without a block it measures, with one it binds.
 */
#ifndef TGI_MODEL_MEMORY_PLAN_H
#define TGI_MODEL_MEMORY_PLAN_H

#include "tegula/tensor.h"
#include <stdbool.h>

typedef struct tgi_memory_plan {
  char *block; /* NULL: measuring */
  size_t bytes;
} tgi_memory_plan;

/** Takes room for a contiguous tensor, 64-byte aligned; its data is NULL while measuring. */
static inline tg_tensor tgi_take(tgi_memory_plan *plan, tg_dtype dtype, int ndim,
                                 const int64_t *shape)
{
  size_t bytes = tg_dtype_bytes(dtype);
  for (int i = 0; i < ndim; i++) {
    bytes *= (size_t)shape[i];
  }
  const tg_tensor t =
      tg_tensor_view(plan->block ? plan->block + plan->bytes : NULL, dtype, ndim, shape);
  plan->bytes += (bytes + 63) / 64 * 64;
  return t;
}

static inline tg_tensor tgi_take_1d(tgi_memory_plan *plan, tg_dtype dtype, int64_t n0)
{
  return tgi_take(plan, dtype, 1, &n0);
}

static inline tg_tensor tgi_take_2d(tgi_memory_plan *plan, tg_dtype dtype, int64_t n0, int64_t n1)
{
  return tgi_take(plan, dtype, 2, (const int64_t[]){n0, n1});
}

static inline tg_tensor tgi_take_3d(tgi_memory_plan *plan, tg_dtype dtype, int64_t n0, int64_t n1,
                                    int64_t n2)
{
  return tgi_take(plan, dtype, 3, (const int64_t[]){n0, n1, n2});
}

#endif
