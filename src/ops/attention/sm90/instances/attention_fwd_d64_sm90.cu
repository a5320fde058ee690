/* Attention forward on Hopper (attention_sm90.cu): heads of up to 64 elements. */
#include "ops/attention/sm90/attention_fwd_sm90.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_fwd_64(const tg_context *ctx, const tg_attention_fwd_args *a,
                               const attention_fwd_plan &p)
{
  if (a->softcap > 0) {
    return run_tiles<fwd_d64_softcap>(ctx, a, p);
  }
  if (p.narrow) {
    return run_tiles<fwd_d64_narrow_window>(ctx, a, p);
  }
  if (p.sides == 2) {
    return p.keys == 64 ? run_tiles<fwd_d64_short_window>(ctx, a, p)
                        : run_tiles<fwd_d64_window>(ctx, a, p);
  }
  const bool split = p.splits > 1;
  switch (p.rows) {
  case 64:
    return split ? run_tiles<fwd_d64_q64_split>(ctx, a, p) : run_tiles<fwd_d64_q64>(ctx, a, p);
  case 128:
    return split ? run_tiles<fwd_d64_q128_split>(ctx, a, p) : run_tiles<fwd_d64_q128>(ctx, a, p);
  default:
    return split ? run_tiles<fwd_d64_q192_split>(ctx, a, p) : run_tiles<fwd_d64_q192>(ctx, a, p);
  }
}

} // namespace TGI_CUDA_ENTRY
