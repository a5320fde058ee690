/**
 * Tensor views: borrowed memory, a dtype, a shape and strides.
 *
 * A view is passed by value and owns nothing. Its memory must stay valid until the call that uses
 * it has completed. Strides count elements; all strides zero means contiguous (row-major). Negative
 * strides are errors. A zero stride on an axis longer than one is allowed only where the op's
 * contract broadcasts. A zeroed view (dtype 0) is an absent optional tensor.
 */
#ifndef TEGULA_TENSOR_H
#define TEGULA_TENSOR_H

#include "status.h"
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** X(code, value, bytes, name) */
#define TG_DTYPE_MAP(X)                                                                            \
  X(F32, 1, 4, "f32")                                                                              \
  X(F16, 2, 2, "f16")                                                                              \
  X(BF16, 3, 2, "bf16")                                                                            \
  X(F64, 4, 8, "f64") /* for the reference backend alone */                                        \
  X(I32, 5, 4, "i32")                                                                              \
  X(I64, 6, 8, "i64")                                                                              \
  X(I8, 7, 1, "i8")                                                                                \
  X(U8, 8, 1, "u8")           /* or two 4-bit values, the first in the low half */                 \
  X(F8_E4M3, 9, 1, "f8_e4m3") /* 1-4-3 bits, bias 7, no infinity, NaN is 0x7f: OCP 8-bit float */

typedef enum tg_dtype {
  TG_DTYPE_NONE = 0,
#define TG_DTYPE_ENUM(code, value, bytes, name) TG_##code = (value),
  TG_DTYPE_MAP(TG_DTYPE_ENUM)
#undef TG_DTYPE_ENUM
} tg_dtype;

/** "f32", "bf16", ...; "none" for 0, "unknown dtype" for a value that is no dtype. Never NULL. */
TG_API const char *tg_dtype_name(tg_dtype dtype);

/** Bytes per element; 0 for a value that is no dtype. */
TG_API size_t tg_dtype_bytes(tg_dtype dtype);

#define TG_MAX_NDIM 6

/** Device of a view's memory. 0: the context's device, unchecked; other values are checked. */
#define TG_DEVICE_CONTEXT 0
#define TG_DEVICE_CPU 1
#define TG_DEVICE_CUDA(index) (2 + (index))

typedef struct tg_tensor {
  void *data;
  tg_dtype dtype;
  int32_t device; /* TG_DEVICE_* */
  int32_t ndim;
  int32_t reserved; /* 0 */
  int64_t shape[TG_MAX_NDIM];
  int64_t stride[TG_MAX_NDIM];
} tg_tensor;

/** A contiguous view; `shape` holds `ndim` extents. ndim above TG_MAX_NDIM gives a zeroed view. */
TG_API tg_tensor tg_tensor_view(void *data, tg_dtype dtype, int ndim, const int64_t *shape);

static inline tg_tensor tg_tensor_1d(void *data, tg_dtype dtype, int64_t n0)
{
  return tg_tensor_view(data, dtype, 1, &n0);
}

static inline tg_tensor tg_tensor_2d(void *data, tg_dtype dtype, int64_t n0, int64_t n1)
{
  const int64_t shape[2] = {n0, n1};
  return tg_tensor_view(data, dtype, 2, shape);
}

static inline tg_tensor tg_tensor_4d(void *data, tg_dtype dtype, int64_t n0, int64_t n1, int64_t n2,
                                     int64_t n3)
{
  const int64_t shape[4] = {n0, n1, n2, n3};
  return tg_tensor_view(data, dtype, 4, shape);
}

#ifdef __cplusplus
}
#endif
#endif
