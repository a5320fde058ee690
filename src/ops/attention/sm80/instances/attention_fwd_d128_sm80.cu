/* Attention forward by mma.sync, heads of up to 128 elements (attention_sm80.cu). */
#include "ops/attention/sm80/attention_fwd_sm80.cuh"
#include "ops/kernels.cuh"

namespace
{

template <typename T>
tg_status run_128(const tg_context *ctx, const tg_attention_fwd_args *a,
                  const attention_fwd_plan &p)
{
  /* Two blocks on a multiprocessor: values have one place on 8.0, which has 164 KiB. */
  return ctx->device->shared_bytes > kMediumShared
             ? run_tiles<fwd_shape<T, 128, 128, 64, 2, 4, 2, 2>>(ctx, a, p)
             : run_tiles<fwd_shape<T, 128, 128, 64, 2, 4, 1, 2>>(ctx, a, p);
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
