/* Attention forward on Hopper, heads of up to 128 elements (attention_sm90.cu). */
#include "ops/attention/sm90/attention_fwd_sm90.cuh"
#include "ops/kernels.cuh"

namespace
{

template <typename T>
tg_status run_128(const tg_context *ctx, const tg_attention_fwd_args *a,
                  const attention_fwd_plan &p)
{
  if (a->softcap > 0) {
    return run_tiles<fwd_shape<T, 128, 128, 128, 2, 2, false, false, 2, true>>(ctx, a, p);
  }
  if (p.sides == 2) {
    return run_tiles<fwd_shape<T, 128, 128, 128, 2, 2, false, false, 2, false>>(ctx, a, p);
  }
  if (p.splits > 1) {
    return run_tiles<fwd_shape<T, 128, 128, 128, 2, 2, false, false, 1, false, true>>(ctx, a, p);
  }
  return p.keys == 128
             ? run_tiles<fwd_shape<T, 128, 128, 128, 2, 2, false, false, 1, false>>(ctx, a, p)
             : run_tiles<fwd_shape<T, 128, 128, 160, 2, 2, false, false, 1, false>>(ctx, a, p);
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_fwd_128(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_fwd_plan &p)
{
  return a->q.dtype == TG_F16 ? run_128<f16>(ctx, a, p) : run_128<bf16>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
