/* Attention backward on Hopper (attention_bwd_sm90.cu): heads of up to 64 elements. */
#include "ops/attention/sm90/attention_bwd_sm90.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_bwd_64(const tg_context *ctx, const tg_attention_bwd_args *a,
                               const attention_bwd_plan &p)
{
  return a->softcap > 0 ? run_keys<bwd_d64_softcap>(ctx, a, p)
         : p.ordered    ? run_keys<bwd_d64>(ctx, a, p)
                        : run_keys<bwd_d64_any_order>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
