/* Attention forward on Hopper, heads of up to 64 elements (attention_sm90.cu). */
#include "ops/attention/sm90/attention_fwd_sm90.cuh"
#include "ops/kernels.cuh"

namespace
{

template <typename T>
tg_status run_64(const tg_context *ctx, const tg_attention_fwd_args *a, const attention_fwd_plan &p)
{
  if (a->softcap > 0) {
    return run_tiles<fwd_shape<T, 64, 64, 128, 2, 2, false, true, 2, true>>(ctx, a, p);
  }
  if (p.narrow) {
    return run_tiles<fwd_shape<T, 64, 64, 64, 3, 2, false, false, 2, false, false, true>>(ctx, a,
                                                                                          p);
  }
  if (p.sides == 2) {
    return p.keys == 64
               ? run_tiles<fwd_shape<T, 64, 64, 64, 3, 2, false, false, 2, false>>(ctx, a, p)
               : run_tiles<fwd_shape<T, 64, 64, 128, 3, 2, false, true, 2, false>>(ctx, a, p);
  }
  if (p.splits > 1) {
    switch (p.rows) {
    case 64:
      return run_tiles<fwd_shape<T, 64, 64, 128, 1, 2, false, true, 1, false, true>>(ctx, a, p);
    case 128:
      return run_tiles<fwd_shape<T, 64, 64, 128, 2, 2, true, true, 1, false, true>>(ctx, a, p);
    default:
      return run_tiles<fwd_shape<T, 64, 64, 128, 3, 2, true, true, 1, false, true>>(ctx, a, p);
    }
  }
  switch (p.rows) {
  case 64:
    return run_tiles<fwd_shape<T, 64, 64, 128, 1, 2, false, true, 1, false>>(ctx, a, p);
  case 128:
    return run_tiles<fwd_shape<T, 64, 64, 128, 2, 2, true, true, 1, false>>(ctx, a, p);
  default:
    return run_tiles<fwd_shape<T, 64, 64, 128, 3, 2, true, true, 1, false>>(ctx, a, p);
  }
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_fwd_64(const tg_context *ctx, const tg_attention_fwd_args *a,
                               const attention_fwd_plan &p)
{
  return a->q.dtype == TG_F16 ? run_64<f16>(ctx, a, p) : run_64<bf16>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
