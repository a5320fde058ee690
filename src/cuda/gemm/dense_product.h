/** A product on tensor cores from compute capability 8.0 on (gemm_sm80.cuh), with what linear
 * layers do behind it: one set of kernels for all ops. */
#ifndef TGI_CUDA_DENSE_PRODUCT_H
#define TGI_CUDA_DENSE_PRODUCT_H

#include "cuda/gemm/plain_product.h"
#include "tegula/linear.h"

extern "C" {
#include "cuda/gemm/gemm_problem.h"
}

/** C = act(A B + bias) + add, rounded once. */
struct dense_finish {
  tg_activation activation = TG_ACTIVATION_NONE;
  tg_tensor preactivation = {}; /* optional: A B + bias */
  tg_tensor add = {};           /* optional; may be C */
};

/** Runs the call on the context's stream. UNSUPPORTED, with nothing done: not two 16-bit operands
 * of one dtype or two of f32 that may be rounded to TF32, each contiguous along an axis, of one
 * matrix; both A along rows and B along columns of k are not served, nor is alpha. Of `accumulate`,
 * `finish` is without an add. */
extern "C" tg_status tgi_dense_product(const tg_context *ctx, const gemm_call *call,
                                       const dense_finish *finish);

/** How it would run; false: not at all. */
extern "C" bool tgi_dense_product_plan(const tg_context *ctx, const gemm_call *call, char *text,
                                       size_t bytes);

inline namespace TGI_CUDA_ENTRY
{

inline tgi_gemm_device gemm_device_of(const tg_context *ctx)
{
  tgi_gemm_device d;
  d.multiprocessors = ctx->device->multiprocessors;
  d.shared_bytes = ctx->device->shared_bytes;
  return d;
}

/** The same for every entry: UNSUPPORTED in those before 8.0, which have no such kernels. */
inline tg_status dense_product(const tg_context *ctx, const gemm_call &call,
                               const dense_finish &finish)
{
#if TGI_VIRTUAL >= 80
  return tgi_dense_product(ctx, &call, &finish);
#else
  (void)ctx;
  (void)call;
  (void)finish;
  return TG_UNSUPPORTED;
#endif
}

inline bool dense_product_plan(const tg_context *ctx, const gemm_call &call, char *text,
                               size_t bytes)
{
#if TGI_VIRTUAL >= 80
  return tgi_dense_product_plan(ctx, &call, text, bytes);
#else
  (void)ctx;
  (void)call;
  (void)text;
  (void)bytes;
  return false;
#endif
}

} // namespace TGI_CUDA_ENTRY

#endif
