/* Linear layers with int4 weights on tensor cores.
 *
 * Method     Weights become 16-bit floats in registers, exactly, and are the left operand of
 *            products with x (cuda/gemm/quantised/quantised_sm80.cuh). Many rows of bf16: the
 *            weight is widened to memory once, for cublasLt. x in f32: linear_int4.cu.
 * Work       Panels of 32 rows of W by up to 32 rows of x for a block.
 * Bound      One reading of W for few rows, tensor cores for many.
 */
#include "ops/linear_int4/int4_product.cuh"
#include "ops/linear_int4/linear_int4_plain.cuh"

extern "C" size_t TGI_WORKSPACE(linear_int4_fwd)(const tg_context *ctx,
                                                 const tg_linear_int4_fwd_args *a)
{
  const size_t plain = linear_int4_plain_bytes(a), widened = widened_bytes(ctx, a);
  return plain > widened ? plain : widened;
}

extern "C" tg_status TGI_KERNEL(linear_int4_fwd)(const tg_context *ctx,
                                                 const tg_linear_int4_fwd_args *a)
{
  return takes_quantised(a) ? multiply_quantised<int4_operand>(ctx, a, int4_product_of(ctx, a))
                            : linear_int4_plain(ctx, a);
}

extern "C" void TGI_PLAN(linear_int4_fwd)(const tg_context *ctx, const tg_linear_int4_fwd_args *a,
                                          char *text, size_t bytes)
{
  if (takes_quantised(a)) {
    tell_quantised(ctx, a, text, bytes);
  } else {
    tell_linear_int4_plain(a, text, bytes);
  }
}
