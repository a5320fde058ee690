/* Attention forward by mma.sync (attention_sm80.cu): heads of up to 256 elements. */
#include "ops/attention/sm80/attention_fwd_sm80.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_fwd_256(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_fwd_plan &p)
{
  return p.rows == 128 ? run_tiles<fwd_d256>(ctx, a, p) : run_tiles<fwd_d256_small>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
