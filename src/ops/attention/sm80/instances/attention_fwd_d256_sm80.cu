/* Attention forward by mma.sync, heads of up to 256 elements (attention_sm80.cu). */
#include "ops/attention/sm80/attention_fwd_sm80.cuh"
#include "ops/kernels.cuh"

namespace
{

template <typename T>
tg_status run_256(const tg_context *ctx, const tg_attention_fwd_args *a,
                  const attention_fwd_plan &p)
{
  return p.rows == 128 ? run_tiles<fwd_shape<T, 256, 256, 64, 1, 8, 1, 1>>(ctx, a, p)
                       : run_tiles<fwd_shape<T, 256, 256, 32, 1, 4, 1, 1>>(ctx, a, p);
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_fwd_256(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_fwd_plan &p)
{
  return a->q.dtype == TG_F16 ? run_256<f16>(ctx, a, p) : run_256<bf16>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
