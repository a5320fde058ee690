/* Attention forward by mma.sync, heads of up to 192 elements (attention_sm80.cu). */
#include "ops/attention/sm80/attention_fwd_sm80.cuh"
#include "ops/kernels.cuh"

namespace
{

template <typename T>
tg_status run_192(const tg_context *ctx, const tg_attention_fwd_args *a,
                  const attention_fwd_plan &p)
{
  if (p.values == 128) {
    return p.rows == 128 ? run_tiles<fwd_shape<T, 192, 128, 64, 1, 8, 1, 1>>(ctx, a, p)
                         : run_tiles<fwd_shape<T, 192, 128, 64, 1, 4, 1, 1>>(ctx, a, p);
  }
  return p.rows == 128 ? run_tiles<fwd_shape<T, 192, 192, 64, 1, 8, 1, 1>>(ctx, a, p)
                       : run_tiles<fwd_shape<T, 192, 192, 64, 1, 4, 1, 1>>(ctx, a, p);
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_fwd_192(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_fwd_plan &p)
{
  return a->q.dtype == TG_F16 ? run_192<f16>(ctx, a, p) : run_192<bf16>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
