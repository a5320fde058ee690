/* Attention forward by mma.sync, f32 by TF32 (attention_sm80.cu). All sizes of heads in one file:
 * it compiles in seconds, and is smaller than one for each. */
#include "ops/attention/sm80/attention_fwd_sm80.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_fwd_tf32(const tg_context *ctx, const tg_attention_fwd_args *a,
                                 const attention_fwd_plan &p)
{
  if (p.qk == 64) {
    return run_tiles<fwd_shape<tf32, 64, 64, 32, 2, 4, 2, 3>>(ctx, a, p);
  }
  return p.rows == 256 ? run_tiles<fwd_shape<tf32, 128, 128, 64, 2, 8, 1, 1>>(ctx, a, p)
                       : run_tiles<fwd_shape<tf32, 128, 128, 32, 1, 4, 2, 1>>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
