/* Attention backward on Hopper (attention_bwd_sm90.cu): heads of up to 256 elements. */
#include "ops/attention/sm90/attention_bwd_wide_sm90.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_bwd_256(const tg_context *ctx, const tg_attention_bwd_args *a,
                                const attention_bwd_plan &p)
{
  return a->softcap > 0 ? run_wide<bwd_d256_softcap>(ctx, a, p) : run_wide<bwd_d256>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
