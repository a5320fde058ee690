/* Attention forward of few queries by mma.sync, heads of up to 192 elements (attention_sm80.cu). */
#include "ops/attention/sm80/attention_few_sm80.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_few_192(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_few_plan &p)
{
  return a->q.dtype == TG_F16 ? run_few_tiles<few_shape<f16, 192>>(ctx, a, p)
                              : run_few_tiles<few_shape<bf16, 192>>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
