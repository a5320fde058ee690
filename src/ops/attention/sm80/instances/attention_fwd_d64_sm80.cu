/* Attention forward by mma.sync (attention_sm80.cu): heads of up to 64 elements. */
#include "ops/attention/sm80/attention_fwd_sm80.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_fwd_64(const tg_context *ctx, const tg_attention_fwd_args *a,
                               const attention_fwd_plan &p)
{
  return p.keys == 96 ? run_tiles<fwd_d64>(ctx, a, p) : run_tiles<fwd_d64_small>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
