/* Attention backward on Hopper (attention_bwd_sm90.cu): heads of up to 128 elements. */
#include "ops/attention/sm90/attention_bwd_sm90.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_bwd_128(const tg_context *ctx, const tg_attention_bwd_args *a,
                                const attention_bwd_plan &p)
{
  if (a->softcap > 0) {
    return run_keys<bwd_d128_softcap>(ctx, a, p);
  }
  if (p.queries == 64) {
    return p.ordered ? run_keys<bwd_d128_masked>(ctx, a, p)
                     : run_keys<bwd_d128_masked_any_order>(ctx, a, p);
  }
  return p.ordered ? run_keys<bwd_d128>(ctx, a, p) : run_keys<bwd_d128_any_order>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
