/* Dense products on Hopper, A along k, B across it: gradients of activations. */
#include "cuda/gemm/sm90/tiles_product_sm90.cuh"

extern "C" tg_status tgi_dense_nn_sm90(const tg_context *ctx, const tiles_call *call)
{
  return dense_run_as<false, true, false>(ctx, *call);
}
