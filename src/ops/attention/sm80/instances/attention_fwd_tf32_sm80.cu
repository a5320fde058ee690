/* Attention forward by mma.sync (attention_sm80.cu): f32 by TF32. All head sizes are in one file:
 * it compiles in seconds, and is smaller than one file each. */
#include "ops/attention/sm80/attention_fwd_sm80.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_fwd_tf32(const tg_context *ctx, const tg_attention_fwd_args *a,
                                 const attention_fwd_plan &p)
{
  if (p.qk == 64) {
    return run_tiles_of<tf32, fwd_d64_tf32>(ctx, a, p);
  }
  return p.rows == 256 ? run_tiles_of<tf32, fwd_d128_tf32_large>(ctx, a, p)
                       : run_tiles_of<tf32, fwd_d128_tf32>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
