/* Attention backward by mma.sync (attention_bwd_sm80.cu): heads of up to 256 elements. */
#include "ops/attention/sm80/attention_bwd_wide_sm80.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_bwd_256(const tg_context *ctx, const tg_attention_bwd_args *a,
                                const attention_bwd_plan &p)
{
  return p.little ? run_wide<dq_d256_small, dkv_d256_small>(ctx, a, p)
                  : run_wide<dq_d256, dkv_d256>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
