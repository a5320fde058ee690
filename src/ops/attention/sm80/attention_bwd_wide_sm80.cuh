/** Attention backward by mma.sync: the launches for heads of more than 128 elements. */
#ifndef TGI_OPS_ATTENTION_BWD_WIDE_SM80_CUH
#define TGI_OPS_ATTENTION_BWD_WIDE_SM80_CUH

#include "ops/attention/sm80/attention_bwd_plan_sm80.cuh"
#include "ops/attention/sm80/attention_bwd_queries_sm80.cuh"
#include "ops/attention/sm80/attention_bwd_wide_keys_sm80.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr size_t kPlaces = 512; /* static shared memory: a tile, and ranges of warps */

/** dq, and dk with dv, as far as they are wanted. */
template <typename T, typename Dq, typename Dkv>
tg_status run_wide_of(const tg_context *ctx, const tg_attention_bwd_args *a,
                      const attention_bwd_plan &p)
{
  constexpr size_t kMost = (Dq::kQueries == 128 ? 163 : 99) << 10;
  static_assert(sizeof(queries_shared<dq_tile<T, Dq>>) + kPlaces <= kMost &&
                    sizeof(wide_keys_shared<dkv_wide_tile<T, Dkv>>) + kPlaces <= kMost,
                "a block has no more");
  const bwd_tiles_job job = job_of(a, p);
  tg_status status =
      tgi_present(&a->dq) ? run_queries<T, Dq>(ctx, p.places * p.l.q_heads, job) : TG_OK;
  if (status == TG_OK && (tgi_present(&a->dk) || tgi_present(&a->dv))) {
    status = run_wide_keys<T, Dkv>(ctx, job);
  }
  return status;
}

template <typename Dq, typename Dkv>
tg_status run_wide(const tg_context *ctx, const tg_attention_bwd_args *a,
                   const attention_bwd_plan &p)
{
  return a->q.dtype == TG_F16 ? run_wide_of<f16, Dq, Dkv>(ctx, a, p)
                              : run_wide_of<bf16, Dq, Dkv>(ctx, a, p);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
