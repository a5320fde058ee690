/* Attention backward by mma.sync (attention_bwd_sm80.cu): f32 by TF32. All head sizes are in one
 * file: it compiles in seconds, and is smaller than one file each. */
#include "ops/attention/sm80/attention_bwd_launch_sm80.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_bwd_tf32(const tg_context *ctx, const tg_attention_bwd_args *a,
                                 const attention_bwd_plan &p)
{
  if (p.qk == 64) {
    return run_ordered<tf32, dq_d64_tf32, dkv_d64_tf32>(ctx, a, p);
  }
  return p.rows == 128 ? run_ordered<tf32, dq_d128_tf32_large, dkv_d128_tf32_large>(ctx, a, p)
                       : run_ordered<tf32, dq_d128_tf32, dkv_d128_tf32>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
