/* Linear layers with e4m3 weights on Hopper, of 17 rows and more.
 *
 * Method     Weights become 16-bit floats in registers, exactly, and are the left operand of
 *            products with x (cuda/gemm/gemm_quantised_sm90.cuh), with sm80's bits.
 * Work       128 rows of W by up to 64 rows of x for a block; of narrow weights two blocks of a
 *            cluster share k.
 * Bound      One reading of W up to some 32 rows, then the tensor cores beside the widening.
 */
#include "cuda/gemm/quantised_product_sm90.cuh"
#include "ops/linear_fp8/fp8_product.cuh"

extern "C" {
#include "ops/quantised_refusals.h"
}

static_assert(kWideOutputs == TGI_WIDE_OUTPUTS, "as the refusals count them");

TGI_QUANTISED_RULES(linear_fp8, true)
TGI_QUANTISED_REFUSED(linear_fp8, true)

extern "C" size_t TGI_WORKSPACE(linear_fp8_fwd)(const tg_context *, const tg_linear_fp8_fwd_args *)
{
  return 0;
}

extern "C" tg_status TGI_KERNEL(linear_fp8_fwd)(const tg_context *ctx,
                                                const tg_linear_fp8_fwd_args *a)
{
  return tgi_linear_fp8_fwd_wide_refused(a)
             ? TG_UNSUPPORTED
             : multiply_wide<fp8_operand>(ctx, a, fp8_product_of(ctx, a));
}

extern "C" void TGI_PLAN(linear_fp8_fwd)(const tg_context *ctx, const tg_linear_fp8_fwd_args *a,
                                         char *text, size_t bytes)
{
  if (!tgi_linear_fp8_fwd_wide_refused(a)) {
    tell_wide(ctx, a, text, bytes);
  }
}
