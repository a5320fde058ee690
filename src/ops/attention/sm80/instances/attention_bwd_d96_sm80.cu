/* Attention backward by mma.sync (attention_bwd_sm80.cu): heads of up to 96 elements. */
#include "ops/attention/sm80/attention_bwd_launch_sm80.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_bwd_96(const tg_context *ctx, const tg_attention_bwd_args *a,
                               const attention_bwd_plan &p)
{
  return run_tiles<dq_d96, dkv_d96, dkv_d96_adding_dq>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
