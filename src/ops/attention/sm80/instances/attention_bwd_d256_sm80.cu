/* Attention backward by mma.sync, heads of up to 256 elements (attention_bwd_sm80.cu). */
#include "ops/attention/sm80/attention_bwd_wide_sm80.cuh"
#include "ops/kernels.cuh"

namespace
{

template <typename T>
tg_status run_256(const tg_context *ctx, const tg_attention_bwd_args *a,
                  const attention_bwd_plan &p)
{
  return p.little ? run_wide<bwd_queries_shape<T, 256, 256, 32, 1, 4, 1, 1>,
                             bwd_wide_keys_shape<T, 256, 256, 16, 2>>(ctx, a, p)
                  : run_wide<bwd_queries_shape<T, 256, 256, 32, 1, 8, 1, 1>,
                             bwd_wide_keys_shape<T, 256, 256, 32, 4>>(ctx, a, p);
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
