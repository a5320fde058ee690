/* Attention backward on Hopper, heads of up to 64 elements (attention_bwd_sm90.cu). */
#include "ops/attention/attention_bwd_sm90.cuh"

namespace
{

template <typename T>
tg_status run_64(const tg_context *ctx, const tg_attention_bwd_args *a, const attention_bwd_plan &p)
{
  return a->softcap > 0 ? run_keys<bwd_shape<T, 64, 64, true>>(ctx, a, p)
                        : run_keys<bwd_shape<T, 64, 128, false>>(ctx, a, p);
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_bwd_64(const tg_context *ctx, const tg_attention_bwd_args *a,
                               const attention_bwd_plan &p)
{
  return a->q.dtype == TG_F16 ? run_64<f16>(ctx, a, p) : run_64<bf16>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
