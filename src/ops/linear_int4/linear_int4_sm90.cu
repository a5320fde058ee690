/* Linear layers with int4 weights on Hopper.
 *
 * Method     Weights become 16-bit floats in registers, exactly, and are the left operand of
 *            warpgroups' products with x in shared memory (cuda/gemm/gemm_quantised_sm90.cuh). What
 *            this does not take, linear_int4_sm80.cu does: many rows of bf16, x in f32.
 * Work       256 rows of W by up to 64 rows of x, or 128 by 128, for a cluster of blocks that share
 *            k.
 * Bound      One reading of W for few rows, tensor cores for many.
 */
#include "cuda/gemm/quantised_product_sm90.cuh"
#include "ops/linear_int4/int4_product.cuh"
#include "ops/linear_int4/linear_int4_plain.cuh"

extern "C" size_t TGI_WORKSPACE(linear_int4_fwd)(const tg_context *,
                                                 const tg_linear_int4_fwd_args *)
{
  return 0;
}

extern "C" tg_status TGI_KERNEL(linear_int4_fwd)(const tg_context *ctx,
                                                 const tg_linear_int4_fwd_args *a)
{
  return takes_wide(ctx, a) ? multiply_wide<int4_operand>(ctx, a, int4_product_of(ctx, a))
                            : TG_UNSUPPORTED;
}

extern "C" void TGI_PLAN(linear_int4_fwd)(const tg_context *ctx, const tg_linear_int4_fwd_args *a,
                                          char *text, size_t bytes)
{
  if (takes_wide(ctx, a)) {
    tell_wide(a, text, bytes);
  }
}
