/* Attention forward of few queries by mma.sync (attention_sm80.cu): heads of up to 128 elements. */
#include "ops/attention/sm80/attention_few_sm80.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_few_128(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_few_plan &p)
{
  return run_few_tiles<few_d128>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
