/* Attention backward by mma.sync (attention_bwd_sm80.cu): heads of up to 192 elements. */
#include "ops/attention/sm80/attention_bwd_wide_sm80.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_bwd_192(const tg_context *ctx, const tg_attention_bwd_args *a,
                                const attention_bwd_plan &p)
{
  if (p.values == 128) {
    return p.little ? run_wide<dq_d192_v128_small, dkv_d192_v128_small>(ctx, a, p)
                    : run_wide<dq_d192_v128, dkv_d192_v128>(ctx, a, p);
  }
  return p.little ? run_wide<dq_d192_small, dkv_d192_small>(ctx, a, p)
                  : run_wide<dq_d192, dkv_d192>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
