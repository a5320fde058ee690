/* Products of f32 operands in TF32: see dense_product.h. */
#include "cuda/gemm/sm80/dense_launch_sm80.cuh"

extern "C" tg_status tgi_dense_product_tf32(const tg_context *ctx, const gemm_call *call,
                                            const dense_form *form, const dense_finish *finish)
{
  return run_form<tf32>(ctx, *call, *form, *finish);
}
