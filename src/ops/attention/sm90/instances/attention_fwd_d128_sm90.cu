/* Attention forward on Hopper (attention_sm90.cu): heads of up to 128 elements. */
#include "ops/attention/sm90/attention_fwd_sm90.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_fwd_128(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_fwd_plan &p)
{
  if (a->softcap > 0) {
    return run_tiles<fwd_d128_softcap>(ctx, a, p);
  }
  if (p.sides == 2) {
    return run_tiles<fwd_d128_window>(ctx, a, p);
  }
  if (p.splits > 1) {
    return run_tiles<fwd_d128_split>(ctx, a, p);
  }
  return p.keys == 128 ? run_tiles<fwd_d128>(ctx, a, p) : run_tiles<fwd_d128_long>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
