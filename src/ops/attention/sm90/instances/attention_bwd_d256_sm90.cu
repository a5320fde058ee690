/* Attention backward on Hopper, heads of up to 256 elements (attention_bwd_sm90.cu). */
#include "ops/attention/sm90/attention_bwd_wide_sm90.cuh"
#include "ops/kernels.cuh"

namespace
{

template <typename T>
tg_status run_256(const tg_context *ctx, const tg_attention_bwd_args *a,
                  const attention_bwd_plan &p)
{
  return a->softcap > 0 ? run_wide<bwd_wide_shape<T, 256, 256, true>>(ctx, a, p)
                        : run_wide<bwd_wide_shape<T, 256, 256, false>>(ctx, a, p);
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_bwd_256(const tg_context *ctx, const tg_attention_bwd_args *a,
                                const attention_bwd_plan &p)
{
  return a->q.dtype == TG_F16 ? run_256<f16>(ctx, a, p) : run_256<bf16>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
