/* Linear layers with e4m3 weights on tensor cores.
 *
 * Method     Weights become 16-bit floats in registers, exactly, and are the left operand of
 *            products with x (cuda/gemm/quantised/quantised_sm80.cuh). Many rows of bf16: the
 *            weight is widened to memory once, for cublasLt. x in f32: linear_fp8.cu.
 * Work       Panels of 32 rows of W by up to 32 rows of x for a block.
 * Bound      One reading of W for few rows, tensor cores for many.
 */
#include "ops/linear_fp8/fp8_product.cuh"
#include "ops/linear_fp8/linear_fp8_plain.cuh"

extern "C" size_t TGI_WORKSPACE(linear_fp8_fwd)(const tg_context *ctx,
                                                const tg_linear_fp8_fwd_args *a)
{
  const size_t plain = linear_fp8_plain_bytes(a), widened = widened_bytes(ctx, a);
  return plain > widened ? plain : widened;
}

extern "C" tg_status TGI_KERNEL(linear_fp8_fwd)(const tg_context *ctx,
                                                const tg_linear_fp8_fwd_args *a)
{
  return takes_quantised(a) ? multiply_quantised<fp8_operand>(ctx, a, fp8_product_of(ctx, a))
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
