/* Attention forward by mma.sync, heads of up to 64 elements (attention_sm80.cu). */
#include "ops/attention/sm80/attention_fwd_sm80.cuh"
#include "ops/kernels.cuh"

namespace
{

template <typename T>
tg_status run_64(const tg_context *ctx, const tg_attention_fwd_args *a, const attention_fwd_plan &p)
{
  return p.keys == 96 ? run_tiles<fwd_shape<T, 64, 64, 96, 2, 4, 2, 2>>(ctx, a, p)
                      : run_tiles<fwd_shape<T, 64, 64, 64, 2, 4, 2, 2>>(ctx, a, p);
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_fwd_64(const tg_context *ctx, const tg_attention_fwd_args *a,
                               const attention_fwd_plan &p)
{
  return a->q.dtype == TG_F16 ? run_64<f16>(ctx, a, p) : run_64<bf16>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
