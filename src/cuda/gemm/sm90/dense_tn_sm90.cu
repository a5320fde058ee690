/* Dense products on Hopper, A and B across k: gradients of weights. */
#include "cuda/gemm/sm90/tiles_product_sm90.cuh"

extern "C" tg_status tgi_dense_tn_sm90(const tg_context *ctx, const tiles_call *call)
{
  return dense_run_as<true, true, false>(ctx, *call);
}
