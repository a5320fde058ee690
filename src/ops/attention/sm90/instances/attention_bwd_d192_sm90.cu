/* Attention backward on Hopper (attention_bwd_sm90.cu): heads of up to 192 elements. */
#include "ops/attention/sm90/attention_bwd_wide_sm90.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_bwd_192(const tg_context *ctx, const tg_attention_bwd_args *a,
                                const attention_bwd_plan &p)
{
  return a->softcap > 0    ? run_wide<bwd_d192_softcap>(ctx, a, p)
         : p.values == 128 ? run_wide<bwd_d192_v128>(ctx, a, p)
                           : run_wide<bwd_d192>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
