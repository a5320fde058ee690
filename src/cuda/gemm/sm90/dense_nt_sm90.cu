/* Dense products on Hopper, A and B along k: forward products of linear layers. */
#include "cuda/gemm/sm90/tiles_product_sm90.cuh"

extern "C" tg_status tgi_dense_nt_sm90(const tg_context *ctx, const tiles_call *call)
{
  return dense_run_as<false, false, true>(ctx, *call);
}
