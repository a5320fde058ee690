/* Attention forward by mma.sync, heads of up to 96 elements (attention_sm80.cu). */
#include "ops/attention/sm80/attention_fwd_sm80.cuh"
#include "ops/kernels.cuh"

namespace
{

template <typename T>
tg_status run_96(const tg_context *ctx, const tg_attention_fwd_args *a, const attention_fwd_plan &p)
{
  return run_tiles<fwd_shape<T, 96, 96, 64, 2, 4, 2, 2>>(ctx, a, p);
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_fwd_96(const tg_context *ctx, const tg_attention_fwd_args *a,
                               const attention_fwd_plan &p)
{
  return a->q.dtype == TG_F16 ? run_96<f16>(ctx, a, p) : run_96<bf16>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
