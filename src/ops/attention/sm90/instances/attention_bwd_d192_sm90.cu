/* Attention backward on Hopper, heads of up to 192 elements (attention_bwd_sm90.cu). */
#include "ops/attention/sm90/attention_bwd_wide_sm90.cuh"
#include "ops/kernels.cuh"

namespace
{

template <typename T>
tg_status run_192(const tg_context *ctx, const tg_attention_bwd_args *a,
                  const attention_bwd_plan &p)
{
  if (a->softcap > 0) {
    return run_wide<bwd_wide_shape<T, 192, 192, true>>(ctx, a, p);
  }
  return p.values == 128 ? run_wide<bwd_wide_shape<T, 192, 128, false>>(ctx, a, p)
                         : run_wide<bwd_wide_shape<T, 192, 192, false>>(ctx, a, p);
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_bwd_192(const tg_context *ctx, const tg_attention_bwd_args *a,
                                const attention_bwd_plan &p)
{
  return a->q.dtype == TG_F16 ? run_192<f16>(ctx, a, p) : run_192<bf16>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
