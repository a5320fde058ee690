/* Attention backward on Hopper, heads of up to 96 elements (attention_bwd_sm90.cu). */
#include "ops/attention/sm90/attention_bwd_sm90.cuh"
#include "ops/kernels.cuh"

namespace
{

template <typename T>
tg_status run_96(const tg_context *ctx, const tg_attention_bwd_args *a, const attention_bwd_plan &p)
{
  if (a->softcap > 0) {
    return run_keys<bwd_shape<T, 96, 64, kOrderedCapped>>(ctx, a, p);
  }
  return p.ordered ? run_keys<bwd_shape<T, 96, 80, kOrdered>>(ctx, a, p)
                   : run_keys<bwd_shape<T, 96, 80, kAnyOrder>>(ctx, a, p);
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_bwd_96(const tg_context *ctx, const tg_attention_bwd_args *a,
                               const attention_bwd_plan &p)
{
  return a->q.dtype == TG_F16 ? run_96<f16>(ctx, a, p) : run_96<bf16>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
