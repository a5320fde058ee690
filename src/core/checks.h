/**
 * Checks of a call, the content of <op>.c. They run in order. The first failure is reported on the
 * context and kept, and later checks do nothing, so a check function reads as a list.
 */
#ifndef TGI_CORE_CHECKS_H
#define TGI_CORE_CHECKS_H

#include "core/context_state.h"
#include "core/tensor_view.h"
#include "tegula/op_info.h"

typedef struct tgi_call {
  const tg_context *ctx;
  const tg_op_info *info;
  const void *args;
  tg_status status; /* of the first check that failed */
  bool sizing;      /* a workspace query: views need no memory */
  bool empty;       /* set by the op: nothing to compute */
} tgi_call;

/**
 * Starts a call and checks every slot against its line in ops.def: presence, dtype, rank, layout,
 * strides, device, memory, overlap of outputs.
 */
tgi_call tgi_call_begin(const tg_context *ctx, const tg_op_info *info, const void *args,
                        bool sizing);

/** Fails the call, unless it has failed already: "<op>: <argument>: expected <expected>, got
 * <...>". */
void tgi_fail(tgi_call *call, tg_status status, const char *argument, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/** Absent views pass the checks of shape and dtype. */
void tgi_want_shape(tgi_call *call, const char *argument, const tg_tensor *t, int ndim,
                    const int64_t *shape);
void tgi_want_dtype(tgi_call *call, const char *argument, const tg_tensor *t, uint32_t dtypes);

/** TGI_WANT_SHAPE(call, args, weight, cols): args->weight is absent or has shape [cols]. */
#define TGI_WANT_SHAPE(call, args, field, ...)                                                     \
  tgi_want_shape(call, #field, &(args)->field,                                                     \
                 (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                        \
                 (const int64_t[]){__VA_ARGS__})
#define TGI_WANT_DTYPE(call, args, field, dtypes)                                                  \
  tgi_want_dtype(call, #field, &(args)->field, dtypes)

/** The number is finite. */
void tgi_want_finite(tgi_call *call, const char *argument, double value);
/** The number is finite and above 0. */
void tgi_want_positive(tgi_call *call, const char *argument, double value);
/** The integer lies in [low, high]. */
void tgi_want_range(tgi_call *call, const char *argument, int64_t value, int64_t low, int64_t high);

/** The call has a workspace of at least `bytes`, 64-byte aligned; not checked while sizing. */
void tgi_want_workspace(tgi_call *call, const void *workspace, size_t given, size_t bytes);

/** dtype masks. The checks add f64 for the reference backend. */
#define TGI_BIT_F32 TG_DTYPE_BIT(TG_F32)
#define TGI_BIT_F64 TG_DTYPE_BIT(TG_F64)
#define TGI_BITS_FLOATS (TGI_BIT_F32 | TG_DTYPE_BIT(TG_F16) | TG_DTYPE_BIT(TG_BF16))
#define TGI_BITS_INTS (TG_DTYPE_BIT(TG_I32) | TG_DTYPE_BIT(TG_I64))

/** dtype of `t`, or f32: the usual rule for parameters with 16-bit activations. */
static inline uint32_t tgi_like_or_f32(const tg_tensor *t)
{
  return TG_DTYPE_BIT(t->dtype) | TGI_BIT_F32;
}

#endif
