/* Products with nothing after them: see plain_product.h. */
#include "cuda/gemm/dense_product.h"
#include "cuda/gemm/gemm_tile.cuh"

extern "C" tg_status TGI_PLAIN_PRODUCT(TGI_ENTRY)(const tg_context *ctx, const gemm_call *call)
{
  if (TGI_VIRTUAL >= 80) {
    const tg_status status = dense_product(ctx, *call, dense_finish());
    if (status != TG_UNSUPPORTED) {
      return status;
    }
  }
  return gemm_tile(ctx, *call, gemm_plain());
}
