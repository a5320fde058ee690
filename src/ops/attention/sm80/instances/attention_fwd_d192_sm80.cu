/* Attention forward by mma.sync (attention_sm80.cu): heads of up to 192 elements. */
#include "ops/attention/sm80/attention_fwd_sm80.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_fwd_192(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_fwd_plan &p)
{
  if (p.values == 128) {
    return p.rows == 128 ? run_tiles<fwd_d192_v128>(ctx, a, p)
                         : run_tiles<fwd_d192_v128_small>(ctx, a, p);
  }
  return p.rows == 128 ? run_tiles<fwd_d192>(ctx, a, p) : run_tiles<fwd_d192_small>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
