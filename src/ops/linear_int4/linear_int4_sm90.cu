/* Linear layers with int4 weights on Hopper.
 *
 * Method     Weights become 16-bit floats in registers, exactly, and are the left operand of
 *            warpgroups' products with x in shared memory (cuda/gemm/gemm_quantised_sm90.cuh).
 *            Many rows of bf16: the weight is widened to memory once, for cublasLt.
 * Work       256 rows of W by up to 64 rows of x, or 128 by 128, for a cluster of blocks that share
 *            k.
 * Bound      One reading of W for few rows, tensor cores for many.
 */
#include "cuda/gemm/quantised_product_sm90.cuh"
#include "ops/linear_int4/int4_product.cuh"

extern "C" {
#include "ops/quantised_refusals.h"
}

TGI_QUANTISED_REFUSALS(linear_int4)

extern "C" size_t TGI_WORKSPACE(linear_int4_fwd)(const tg_context *ctx,
                                                 const tg_linear_int4_fwd_args *a)
{
  return widened_bytes(ctx, a);
}

extern "C" tg_status TGI_KERNEL(linear_int4_fwd)(const tg_context *ctx,
                                                 const tg_linear_int4_fwd_args *a)
{
  return tgi_linear_int4_fwd_refused(a)
             ? TG_UNSUPPORTED
             : multiply_wide<int4_operand>(ctx, a, int4_product_of(ctx, a));
}

extern "C" void TGI_PLAN(linear_int4_fwd)(const tg_context *ctx, const tg_linear_int4_fwd_args *a,
                                          char *text, size_t bytes)
{
  if (!tgi_linear_int4_fwd_refused(a)) {
    tell_wide(ctx, a, text, bytes);
  }
}
