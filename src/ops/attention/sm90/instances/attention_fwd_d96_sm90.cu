/* Attention forward on Hopper (attention_sm90.cu): heads of up to 96 elements. */
#include "ops/attention/sm90/attention_fwd_sm90.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_fwd_96(const tg_context *ctx, const tg_attention_fwd_args *a,
                               const attention_fwd_plan &p)
{
  return a->softcap > 0 ? run_tiles<fwd_d96_softcap>(ctx, a, p)
         : p.sides == 2 ? run_tiles<fwd_d96_window>(ctx, a, p)
                        : run_tiles<fwd_d96>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
