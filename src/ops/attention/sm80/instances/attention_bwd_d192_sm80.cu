/* Attention backward by mma.sync, heads of up to 192 elements (attention_bwd_sm80.cu). */
#include "ops/attention/sm80/attention_bwd_wide_sm80.cuh"
#include "ops/kernels.cuh"

namespace
{

template <typename T, int kV>
tg_status run_192(const tg_context *ctx, const tg_attention_bwd_args *a,
                  const attention_bwd_plan &p)
{
  return p.little ? run_wide<bwd_queries_shape<T, 192, kV, 32, 1, 4, 2, 1>,
                             bwd_wide_keys_shape<T, 192, kV, 32, 2>>(ctx, a, p)
                  : run_wide<bwd_queries_shape<T, 192, kV, 64, 1, 8, 1, 1>,
                             bwd_wide_keys_shape<T, 192, kV, 64, 4>>(ctx, a, p);
}

template <typename T>
tg_status run_values(const tg_context *ctx, const tg_attention_bwd_args *a,
                     const attention_bwd_plan &p)
{
  return p.values == 128 ? run_192<T, 128>(ctx, a, p) : run_192<T, 192>(ctx, a, p);
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_bwd_192(const tg_context *ctx, const tg_attention_bwd_args *a,
                                const attention_bwd_plan &p)
{
  return a->q.dtype == TG_F16 ? run_values<f16>(ctx, a, p) : run_values<bf16>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
