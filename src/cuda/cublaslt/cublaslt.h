/**
 * Matrix products by cublasLt, which is opened with dlopen by tg_context_prepare: building needs
 * none of its files, and a machine without it runs on kernels of our own. The few declarations that
 * are needed stand in cublaslt.c; the library's version is checked when it is opened.
 */
#ifndef TGI_CUDA_CUBLASLT_H
#define TGI_CUDA_CUBLASLT_H

#include "core/device_state.h"
#include "tegula/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A row-major matrix as it is stored: rows `step` elements apart. */
typedef struct tgi_lt_matrix {
  const void *data;
  tg_dtype dtype;
  int64_t step;
  bool turned; /* the product takes its transpose */
} tgi_lt_matrix;

/** C [m, n] = A [m, k] B [k, n] + bias [n] + add [m, n]; sums in f32. f32 operands are
 * rounded to TF32 only if that is allowed. */
typedef struct tgi_lt_product {
  int64_t m, n, k;
  tgi_lt_matrix a, b; /* of one dtype */
  void *c;            /* of the operands' dtype, or f32 */
  tg_dtype c_dtype;
  int64_t c_step;
  const void *add; /* NULL: none; of C's dtype; may be C */
  int64_t add_step;
  const void *bias; /* NULL: none; contiguous */
  tg_dtype bias_dtype;
  bool allow_tf32;
} tgi_lt_product;

typedef struct tgi_lt tgi_lt;

/** Opens the library for the current device, of compute capability `sm`, with 32 MiB of its memory
 * for products that are split along k. NULL: not there, too old, or no memory; `why` says what. */
tgi_lt *tgi_lt_open(int sm, char *why, size_t bytes);
void tgi_lt_close(tgi_lt *lt);

/** True if the context has been prepared and the library was found. */
bool tgi_lt_ready(const tg_context *ctx);

/**
 * Runs a product on the context's stream. UNSUPPORTED, with nothing done: not ready, operands of
 * two dtypes, or no algorithm for these steps and addresses. A form that has not been seen before
 * costs the library's search for an algorithm once.
 */
tg_status tgi_lt_multiply(const tg_context *ctx, const tgi_lt_product *product);

/** True if tgi_lt_multiply would take it. */
bool tgi_lt_plan(const tg_context *ctx, const tgi_lt_product *product);

#ifdef __cplusplus
}
#endif
#endif
