/**
 * Attention backward on Hopper's tensor cores (attention_bwd_sm90.cu): the kernel for heads of up
 * to 128 elements.
 *
 * Persistent and warp-specialised (arXiv:2407.08608): a thread block has 128 keys of a kv head, 64
 * for each of two consumer warp groups, and loops over the queries of all heads that share them. A
 * producer warp group loads tiles by TMA through a two-stage pipeline; in order, three more of its
 * threads wait for the turns of dq's sums and pass them on. Consumers: attention_bwd_keys_sm90.cuh.
 * Bound by tensor cores.
 */
#ifndef TGI_OPS_ATTENTION_BWD_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_SM90_CUH

#include "ops/attention/sm90/attention_bwd_keys_sm90.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

template <typename T, typename Config>
__global__ void __launch_bounds__(bwd_tile<T, Config>::kThreads, 1) attention_bwd_tiles_kernel(
    const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
    const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap dout_map,
    const __grid_constant__ CUtensorMap dq_map, const __grid_constant__ CUtensorMap dk_map,
    const __grid_constant__ CUtensorMap dv_map, const __grid_constant__ bwd_job job)
{
  using S = bwd_tile<T, Config>;
  extern __shared__ __align__(1024) uint8_t memory[];
  bwd_shared<S> &sh = *reinterpret_cast<bwd_shared<S> *>(memory);
  const int warp = __shfl_sync(kAllLanes, threadIdx.x / kWarp, 0);
  if (threadIdx.x == 0) {
    init_barrier(&sh.keys_full, 1);
    init_barrier(&sh.keys_empty,
                 S::kWarpGroups * kGroupWarps + (S::kOrdered && job.dq.data ? 3 : 0));
    for (int i = 0; i < S::kStages; i++) {
      init_barrier(&sh.full[i], 1);
      init_barrier(&sh.empty[i], S::kWarpGroups * kGroupWarps);
    }
    for (int i = 0; i < 2; i++) {
      init_barrier(&sh.ds_full[i], S::kWarpGroups * kGroupWarps);
      init_barrier(&sh.ds_empty[i], S::kWarpGroups);
      init_barrier(&sh.turn_come[i], 1);
      init_barrier(&sh.turn_used[i], S::kWarpGroups * kGroupWarps);
      init_barrier(&sh.turn_told[i], 1);
    }
    init_barrier(&sh.place_full, 1);
    init_barrier(&sh.place_used, 1);
    publish_barriers();
  }
  await_kernel_before();
  let_next_begin();
  __syncthreads();
  if (warp < kGroupWarps) {
    give_registers<S::kLoaderRegisters>();
    if constexpr (S::kOrdered) {
      if (threadIdx.x == 0) {
        fetch_items<S>(&q_map, &k_map, &v_map, &dout_map, job, sh);
      } else if (job.dq.data && warp > 0 && threadIdx.x % kWarp == 0) {
        keep_order<S>(job, sh, warp - 1);
      }
    } else if (threadIdx.x == 0) {
      fetch_tiles<S>(&q_map, &dout_map, job, sh);
    } else if (threadIdx.x == kWarp) {
      take_items<S>(&k_map, &v_map, job, sh);
    }
  } else {
    take_registers<S::kRegisters>();
    compute_keys<S>(&dq_map, &dk_map, &dv_map, job, sh, warp / kGroupWarps - 1);
  }
}

/* ---- host ---- */

template <typename T, typename Config>
tg_status run_keys_of(const tg_context *ctx, const tg_attention_bwd_args *a,
                      const attention_bwd_plan &p)
{
  using S = bwd_tile<T, Config>;
  static_assert(sizeof(bwd_shared<S>) <= 227 << 10, "a block has no more");
  CUtensorMap q, k, v, dout, dq, dk, dv;
  const page_map maps[] = {
      {&q, &a->q, S::kQueries},
      {&k, &a->k, S::kKeys},
      {&v, &a->v, S::kKeys},
      {&dout, &a->dout, S::kQueries},
      {&dq, tgi_present(&a->dq) ? &a->dq : &a->q, S::kPart},
      {&dk, tgi_present(&a->dk) ? &a->dk : &a->k, kGroupRows},
      {&dv, tgi_present(&a->dv) ? &a->dv : &a->v, kGroupRows},
  };
  tg_status status = make_page_maps(ctx, maps);
  if (status == TG_OK) {
    const bwd_job job = job_of(a, p);
    status =
        launch_next(ctx, attention_bwd_tiles_kernel<T, Config>, dim3(blocks_for(ctx, job.items, 1)),
                    S::kThreads, sizeof(bwd_shared<S>), q, k, v, dout, dq, dk, dv, job);
  }
  return status;
}

template <typename Config>
tg_status run_keys(const tg_context *ctx, const tg_attention_bwd_args *a,
                   const attention_bwd_plan &p)
{
  return a->q.dtype == TG_F16 ? run_keys_of<f16, Config>(ctx, a, p)
                              : run_keys_of<bf16, Config>(ctx, a, p);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
