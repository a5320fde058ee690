/** Calls of linear_int8 as the kernels of cuda/gemm see them. */
#ifndef TGI_OPS_INT8_PRODUCT_CUH
#define TGI_OPS_INT8_PRODUCT_CUH

#include "cuda/gemm/quantised/quantised_product.cuh"
#include "ops/kernels.cuh"
#include "ops/linear_int8/int8_operand.cuh"

inline namespace TGI_CUDA_ENTRY
{

inline quantised_product int8_product_of(const tg_context *ctx, const tg_linear_int8_fwd_args *a)
{
  const int64_t in = a->x.shape[1], out = a->y.shape[1];
  const packed_weight w = packed_weight_of(&a->weight, TGI_INT8_MAGIC, TGI_INT8_VERSION, out, in,
                                           FAULT_SITE(ctx, linear_int8_fwd, weight));
  return quantised_product_of(a, w, tgi_int8_panel_bytes(in), int8_operand::kMostStageBytes);
}

} // namespace TGI_CUDA_ENTRY

#endif
