/* Linear layers with int8 weights on tensor cores; in the dynamic mode without.
 *
 * Method     Weights become 16-bit floats in registers, exactly, and are the left operand of
 *            products with x (cuda/gemm/gemm_quantised_sm80.cuh). Many rows of bf16: the weight is
 *            widened to memory once, for cublasLt. x in f32, and the dynamic mode: linear_int8.cu.
 * Work       Panels of 32 rows of W by up to 64 rows of x for a block.
 * Bound      One reading of W for few rows, tensor cores for many.
 */
#include "cuda/gemm/gemm_operand_int8.cuh"
#include "cuda/gemm/quantised_product.cuh"
#include "ops/linear_int8/linear_int8_plain.cuh"

namespace
{

quantised_product product_of(const tg_context *ctx, const tg_linear_int8_fwd_args *a)
{
  const int64_t in = a->x.shape[1], out = a->y.shape[1];
  const packed_weight w = packed_weight_of(&a->weight, TGI_INT8_MAGIC, TGI_INT8_VERSION, out, in,
                                           FAULT_SITE(ctx, linear_int8_fwd, weight));
  return quantised_product_of(a, w, tgi_int8_panel_bytes(in), int8_operand::kMostStageBytes);
}

bool takes(const tg_linear_int8_fwd_args *a)
{
  return a->mode == TG_INT8_WEIGHT_ONLY && takes_quantised(a);
}

} // namespace

extern "C" size_t TGI_WORKSPACE(linear_int8_fwd)(const tg_context *ctx,
                                                 const tg_linear_int8_fwd_args *a)
{
  const size_t plain = linear_int8_plain_bytes(a), widened = widened_bytes(ctx, a);
  return plain > widened ? plain : widened;
}

extern "C" tg_status TGI_KERNEL(linear_int8_fwd)(const tg_context *ctx,
                                                 const tg_linear_int8_fwd_args *a)
{
  return takes(a) ? multiply_quantised<int8_operand>(ctx, a, product_of(ctx, a))
                  : linear_int8_plain(ctx, a);
}

extern "C" void TGI_PLAN(linear_int8_fwd)(const tg_context *ctx, const tg_linear_int8_fwd_args *a,
                                          char *text, size_t bytes)
{
  if (takes(a)) {
    tell_quantised(ctx, a, text, bytes);
  } else {
    tell_linear_int8_plain(a, text, bytes);
  }
}
