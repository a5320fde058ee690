/* Attention forward on Hopper, heads of up to 256 elements (attention_sm90.cu). */
#include "ops/attention/sm90/attention_fwd_sm90.cuh"
#include "ops/kernels.cuh"

namespace
{

template <typename T>
tg_status run_256(const tg_context *ctx, const tg_attention_fwd_args *a,
                  const attention_fwd_plan &p)
{
  return a->softcap > 0
             ? run_tiles<fwd_shape<T, 256, 256, 64, 2, 1, false, false, 2, true>>(ctx, a, p)
         : p.sides == 2
             ? run_tiles<fwd_shape<T, 256, 256, 64, 2, 1, false, false, 2, false>>(ctx, a, p)
             : run_tiles<fwd_shape<T, 256, 256, 80, 2, 1, false, false, 1, false>>(ctx, a, p);
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
