/**
 * Attention backward on Hopper's tensor cores (attention_bwd_sm90.cu): the kernel for heads of more
 * than 128 elements.
 *
 * Persistent and warp-specialised (arXiv:2407.08608). A thread block has 64 keys of a kv head:
 * accumulators of dk and dv for more would not fit in its registers. Both consumer warp groups have
 * all of these keys: one computes scores, p and dv, the other one dp, ds and dk
 * (attention_bwd_wide_sides_sm90.cuh). A producer warp group loads tiles by TMA through a two-stage
 * pipeline and keeps the order of dq's sums. Bound by tensor cores.
 */
#ifndef TGI_OPS_ATTENTION_BWD_WIDE_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_WIDE_SM90_CUH

#include "ops/attention/sm90/attention_bwd_wide_sides_sm90.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

template <typename T, typename Config>
__global__ void __launch_bounds__(bwd_wide_tile<T, Config>::kThreads, 1)
    attention_bwd_wide_kernel(const __grid_constant__ CUtensorMap q_map,
                              const __grid_constant__ CUtensorMap k_map,
                              const __grid_constant__ CUtensorMap v_map,
                              const __grid_constant__ CUtensorMap dout_map,
                              const __grid_constant__ CUtensorMap dk_map,
                              const __grid_constant__ CUtensorMap dv_map,
                              const __grid_constant__ bwd_job job)
{
  using S = bwd_wide_tile<T, Config>;
  extern __shared__ __align__(1024) uint8_t memory[];
  bwd_shared<S> &sh = *reinterpret_cast<bwd_shared<S> *>(memory);
  const int warp = __shfl_sync(kAllLanes, threadIdx.x / kWarp, 0);
  if (threadIdx.x == 0) {
    init_barrier(&sh.keys_full, 1);
    init_barrier(&sh.keys_empty, S::kWarpGroups + (job.dq.data ? 3 : 0));
    init_barrier(&sh.keys_read, S::kWarpGroups * kGroupWarps);
    for (int i = 0; i < S::kStages; i++) {
      init_barrier(&sh.full[i], 1);
      init_barrier(&sh.empty[i], S::kWarpGroups * kGroupWarps);
    }
    for (int i = 0; i < kGroupWarps; i++) {
      init_barrier(&sh.p_full[i], 1);
      init_barrier(&sh.p_empty[i], 1);
    }
    for (int i = 0; i < 2; i++) {
      init_barrier(&sh.ds_full[i], kGroupWarps);
      init_barrier(&sh.ds_empty[i], S::kWarpGroups);
      init_barrier(&sh.turn_come[i], 1);
      init_barrier(&sh.turn_used[i], S::kWarpGroups * kGroupWarps);
      init_barrier(&sh.turn_told[i], 1);
    }
    publish_barriers();
  }
  await_kernel_before();
  let_next_begin();
  __syncthreads();
  if (warp < kGroupWarps) {
    give_registers<S::kLoaderRegisters>();
    if (threadIdx.x == 0) {
      fetch_items<S>(&q_map, &k_map, &v_map, &dout_map, job, sh);
    } else if (job.dq.data && warp > 0 && threadIdx.x % kWarp == 0) {
      keep_order<S>(job, sh, warp - 1);
    }
    return;
  }
  take_registers<S::kRegisters>();
  if (warp < 2 * kGroupWarps) {
    compute_side<S, true>(&dv_map, job, sh);
  } else {
    compute_side<S, false>(&dk_map, job, sh);
  }
}

/* ---- host ---- */

template <typename T, typename Config>
tg_status run_wide_of(const tg_context *ctx, const tg_attention_bwd_args *a,
                      const attention_bwd_plan &p)
{
  using S = bwd_wide_tile<T, Config>;
  static_assert(sizeof(bwd_shared<S>) <= 227 << 10, "a block has no more");
  CUtensorMap q, k, v, dout, dk, dv;
  const page_map maps[] = {
      {&q, &a->q, S::kQueries},
      {&k, &a->k, S::kKeys},
      {&v, &a->v, S::kKeys},
      {&dout, &a->dout, S::kQueries},
      {&dk, tgi_present(&a->dk) ? &a->dk : &a->k, S::kKeys},
      {&dv, tgi_present(&a->dv) ? &a->dv : &a->v, S::kKeys},
  };
  tg_status status = make_page_maps(ctx, maps);
  if (status == TG_OK) {
    const bwd_job job = job_of(a, p);
    status =
        launch_next(ctx, attention_bwd_wide_kernel<T, Config>, dim3(blocks_for(ctx, job.items, 1)),
                    S::kThreads, sizeof(bwd_shared<S>), q, k, v, dout, dk, dv, job);
  }
  return status;
}

template <typename Config>
tg_status run_wide(const tg_context *ctx, const tg_attention_bwd_args *a,
                   const attention_bwd_plan &p)
{
  return a->q.dtype == TG_F16 ? run_wide_of<f16, Config>(ctx, a, p)
                              : run_wide_of<bf16, Config>(ctx, a, p);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
