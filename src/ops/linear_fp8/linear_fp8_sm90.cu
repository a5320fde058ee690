/* Linear layers with e4m3 weights on Hopper.
 *
 * Method     Weights become 16-bit floats in registers, exactly, and are the left operand of
 *            products with x, with sm80's bits: up to 16 rows in its strips, more by wgmma, of x in
 *            tiles (cuda/gemm/quantised/quantised_sm90.cuh). Kernels may begin while the one ahead
 *            runs.
 * Work       17 rows and more: 128 rows of W by up to 64 rows of x for a block; of narrow weights
 *            two blocks of a cluster share k.
 * Bound      One reading of W up to some 32 rows, then the tensor cores beside the widening.
 */
#include "cuda/gemm/quantised/quantised_product_sm90.cuh"
#include "ops/linear_fp8/fp8_product.cuh"

extern "C" {
#include "ops/quantised_refusals.h"
}

static_assert(kWideOutputs == TGI_WIDE_OUTPUTS && kFewRows == TGI_FEW_ROWS,
              "as the refusals count them");

TGI_QUANTISED_RULES(linear_fp8, true)
TGI_QUANTISED_REFUSED(linear_fp8, true)

extern "C" size_t TGI_WORKSPACE(linear_fp8_fwd)(const tg_context *ctx,
                                                const tg_linear_fp8_fwd_args *a)
{
  return tgi_linear_fp8_fwd_weight_only_elsewhere(a) ? 0 : tiles_bytes(ctx, a);
}

extern "C" tg_status TGI_KERNEL(linear_fp8_fwd)(const tg_context *ctx,
                                                const tg_linear_fp8_fwd_args *a)
{
  return tgi_linear_fp8_fwd_weight_only_refused(a)
             ? TG_UNSUPPORTED
             : multiply_on_hopper<fp8_operand>(ctx, a, fp8_product_of(ctx, a));
}

extern "C" void TGI_PLAN(linear_fp8_fwd)(const tg_context *ctx, const tg_linear_fp8_fwd_args *a,
                                         char *text, size_t bytes)
{
  if (!tgi_linear_fp8_fwd_weight_only_refused(a)) {
    tell_on_hopper(ctx, a, text, bytes);
  }
}
