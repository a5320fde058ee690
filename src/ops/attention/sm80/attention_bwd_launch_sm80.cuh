/** Attention backward by mma.sync: the launches for heads of up to 128 elements. dq, and dk with
 * dv, each by a kernel in a fixed order; or all three at once, in no fixed order. */
#ifndef TGI_OPS_ATTENTION_BWD_LAUNCH_SM80_CUH
#define TGI_OPS_ATTENTION_BWD_LAUNCH_SM80_CUH

#include "ops/attention/sm80/attention_bwd_keys_sm80.cuh"
#include "ops/attention/sm80/attention_bwd_plan_sm80.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** dq, and dk with dv, as far as they are wanted, in a fixed order. */
template <typename T, typename Dq, typename Dkv>
tg_status run_ordered(const tg_context *ctx, const tg_attention_bwd_args *a,
                      const attention_bwd_plan &p)
{
  const bwd_tiles_job job = job_of(a, p);
  tg_status status =
      tgi_present(&a->dq) ? run_queries<T, Dq>(ctx, p.places * p.l.q_heads, job) : TG_OK;
  if (status == TG_OK && (tgi_present(&a->dk) || tgi_present(&a->dv))) {
    status = run_keys<T, Dkv>(ctx, job);
  }
  return status;
}

/** All three, in no fixed order. */
template <typename T, typename Dkv>
tg_status run_added(const tg_context *ctx, const tg_attention_bwd_args *a,
                    const attention_bwd_plan &p)
{
  static_assert(Dkv::kQueries == (Dkv::kHeadDim == 64 ? 32 : 64), "as the plan says");
  const bwd_tiles_job job = job_of(a, p);
  tg_status status = fill_bytes(ctx, job.sums, 0, p.bytes - p.records - p.list - p.terms);
  if (status == TG_OK) {
    status = run_keys<T, Dkv>(ctx, job);
  }
  if (status == TG_OK) {
    status =
        launch(ctx, attention_bwd_dq_sums_kernel<T, Dkv>, grid_of(p.sums), kDeltaThreads, 0, job);
  }
  return status;
}

template <typename T, typename Dq, typename Dkv, typename DkvAdding>
tg_status run_tiles_of(const tg_context *ctx, const tg_attention_bwd_args *a,
                       const attention_bwd_plan &p)
{
  return p.adds ? run_added<T, DkvAdding>(ctx, a, p) : run_ordered<T, Dq, Dkv>(ctx, a, p);
}

/** Of 16-bit elements. */
template <typename Dq, typename Dkv, typename DkvAdding>
tg_status run_tiles(const tg_context *ctx, const tg_attention_bwd_args *a,
                    const attention_bwd_plan &p)
{
  return a->q.dtype == TG_F16 ? run_tiles_of<f16, Dq, Dkv, DkvAdding>(ctx, a, p)
                              : run_tiles_of<bf16, Dq, Dkv, DkvAdding>(ctx, a, p);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
