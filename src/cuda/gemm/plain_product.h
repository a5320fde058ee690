/** A matrix product as gemm_tile.cuh takes it, and the one function of an entry that multiplies so
 * and does nothing else: its kernels exist once for all ops. */
#ifndef TGI_CUDA_PLAIN_PRODUCT_H
#define TGI_CUDA_PLAIN_PRODUCT_H

#include "cuda/launch.cuh"

/** A matrix for each batch. Element (i, j) is row_step * i + col_step * j elements from the start
 * of its matrix; batch (o, i) starts at batch_step * o + batch_step2 * (i / share). */
struct gemm_operand {
  const void *data = nullptr;
  tg_dtype dtype = TG_DTYPE_NONE; /* f32, f16 or bf16 */
  int64_t row_step = 0, col_step = 1;
  int64_t batch_step = 0, batch_step2 = 0;
  int64_t share = 1; /* neighbours of the inner batch axis that have one matrix (grouped heads) */
};

struct gemm_call {
  int64_t m = 0, n = 0, k = 0;
  int64_t outer = 1, inner = 1; /* batch axes */
  gemm_operand a, b;            /* [m, k] and [k, n] */
  void *c = nullptr;            /* [m, n] */
  tg_dtype c_dtype = TG_F32;
  int64_t c_row_step = 0, c_col_step = 1;
  int64_t c_batch_step = 0, c_batch_step2 = 0;
  float alpha = 1;
  bool allow_tf32 = false;    /* two f32 operands may be rounded to TF32, where there is that */
  bool accumulate = false;    /* C + result, a sum in f32, rounded once */
  const void *bias = nullptr; /* [n], contiguous, one for all batches */
  tg_dtype bias_dtype = TG_DTYPE_NONE;
};

#define TGI_PLAIN_PRODUCT(entry) TGI_CUDA_JOIN(tgi_plain_product_, entry)

/** C = alpha A B + bias (+ C) on the context's stream. The sm90 entry, which has kernels for some
 * ops only, takes that of sm80. */
extern "C" tg_status TGI_PLAIN_PRODUCT(any)(const tg_context *ctx, const gemm_call *call);
extern "C" tg_status TGI_PLAIN_PRODUCT(sm80)(const tg_context *ctx, const gemm_call *call);

inline namespace TGI_CUDA_ENTRY
{

inline tg_status plain_product(const tg_context *ctx, const gemm_call &call)
{
  return TGI_VIRTUAL < 80 ? TGI_PLAIN_PRODUCT(any)(ctx, &call)
                          : TGI_PLAIN_PRODUCT(sm80)(ctx, &call);
}

} // namespace TGI_CUDA_ENTRY

#endif
