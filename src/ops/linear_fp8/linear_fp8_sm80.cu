/* Linear layers with e4m3 weights on tensor cores.
 *
 * Method     Weights become 16-bit floats in registers, exactly, and are the left operand of
 *            products with x (cuda/gemm/gemm_quantised_sm80.cuh). Many rows of bf16: the weight is
 *            widened to memory once, for cublasLt. x in f32: linear_fp8.cu.
 * Work       Panels of 32 rows of W by up to 32 rows of x for a block.
 * Bound      One reading of W for few rows, tensor cores for many.
 */
#include "cuda/gemm/quantised_product.cuh"
#include "ops/linear_fp8/fp8_operand.cuh"
#include "ops/linear_fp8/linear_fp8_plain.cuh"

namespace
{

quantised_product product_of(const tg_context *ctx, const tg_linear_fp8_fwd_args *a)
{
  const int64_t in = a->x.shape[1], out = a->y.shape[1];
  const packed_weight w = packed_weight_of(&a->weight, TGI_FP8_MAGIC, TGI_FP8_VERSION, out, in,
                                           FAULT_SITE(ctx, linear_fp8_fwd, weight));
  return quantised_product_of(a, w, tgi_fp8_panel_bytes(in), fp8_operand::kMostStageBytes);
}

} // namespace

extern "C" size_t TGI_WORKSPACE(linear_fp8_fwd)(const tg_context *ctx,
                                                const tg_linear_fp8_fwd_args *a)
{
  const size_t plain = linear_fp8_plain_bytes(a), widened = widened_bytes(ctx, a);
  return plain > widened ? plain : widened;
}

extern "C" tg_status TGI_KERNEL(linear_fp8_fwd)(const tg_context *ctx,
                                                const tg_linear_fp8_fwd_args *a)
{
  return takes_quantised(a) ? multiply_quantised<fp8_operand>(ctx, a, product_of(ctx, a))
                            : linear_fp8_plain(ctx, a);
}

extern "C" void TGI_PLAN(linear_fp8_fwd)(const tg_context *ctx, const tg_linear_fp8_fwd_args *a,
                                         char *text, size_t bytes)
{
  if (takes_quantised(a)) {
    tell_quantised(ctx, a, text, bytes);
  } else {
    tell_linear_fp8_plain(a, text, bytes);
  }
}
