/**
 * Attention forward on Hopper's tensor cores (attention_sm90.cu): the kernel.
 *
 * Persistent and warp-specialised: one producer thread loads tiles by TMA (the rest of its warp
 * group idles and has released its registers), and one to three consumer warp groups compute 64
 * queries each. K and V use separate multi-stage pipelines, which run on from one tile of queries
 * to the next, and up to 128 elements Q is double-buffered for each warp group: so loading the next
 * tile overlaps the end of this one. Consumers: attention_fwd_running_sm90.cuh,
 * attention_fwd_narrow_sm90.cuh. Bound by tensor cores.
 */
#ifndef TGI_OPS_ATTENTION_FWD_SM90_CUH
#define TGI_OPS_ATTENTION_FWD_SM90_CUH

#include "ops/attention/sm90/attention_fwd_narrow_sm90.cuh"
#include "ops/attention/sm90/attention_fwd_running_sm90.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** Prefetches the kernel parameters into the constant cache, one cache line per lane of an
 * otherwise idle warp: the first reader then waits once, not once per line. `shared`: kWarp words
 * of shared memory, without which the assembler would remove a load that nothing reads. */
template <typename Job>
__device__ __forceinline__ void fetch_arguments(const Job &job, uint32_t *shared)
{
  constexpr int kWords = sizeof(Job) / sizeof(uint32_t), kLine = 16;
  const int word = (int)threadIdx.x % kWarp * kLine;
  static_assert(kWords <= kWarp * kLine, "a lane for each line");
  if (word < kWords) {
    shared[threadIdx.x % kWarp] = reinterpret_cast<const uint32_t *>(&job)[word];
  }
}

template <typename T, typename Config>
__global__ void __launch_bounds__(fwd_tile<T, Config>::kThreads, 1)
    attention_fwd_tiles_kernel(const __grid_constant__ CUtensorMap q_map,
                               const __grid_constant__ CUtensorMap k_map,
                               const __grid_constant__ CUtensorMap v_map,
                               const __grid_constant__ CUtensorMap out_map,
                               const __grid_constant__ fwd_job job)
{
  using S = fwd_tile<T, Config>;
  extern __shared__ __align__(1024) uint8_t memory[];
  fwd_shared<S> &sh = *reinterpret_cast<fwd_shared<S> *>(memory);
  if (threadIdx.x == 0) {
    for (int g = 0; g < S::kWarpGroups; g++) {
      for (int slot = 0; slot < S::kQueryStages; slot++) {
        init_barrier(&sh.q_full[slot][g], 1);
        init_barrier(&sh.q_empty[slot][g], 1);
      }
    }
    for (int s = 0; s < S::kStages; s++) {
      init_barrier(&sh.k_full[s], 1);
      init_barrier(&sh.k_empty[s], S::kWarpGroups);
      init_barrier(&sh.v_full[s], 1);
      init_barrier(&sh.v_empty[s], S::kWarpGroups);
    }
    publish_barriers();
  } else if (threadIdx.x / kWarp == 1) {
    fetch_map(&q_map);
    fetch_map(&k_map);
    fetch_map(&v_map);
    static_assert(sizeof sh.place >= kWarp * sizeof(uint32_t), "a word for each lane");
    fetch_arguments(job, reinterpret_cast<uint32_t *>(sh.place));
  }
  await_kernel_before();
  let_next_begin();
  __syncthreads();
  const int group = uniform(threadIdx.x / kWarpgroup);
  if (group == 0) {
    give_registers<S::kLoaderRegisters>();
    if (threadIdx.x == 0) {
      fetch_tiles<S>(&q_map, &k_map, &v_map, job, sh);
    }
  } else {
    take_registers<S::kRegisters>();
    if constexpr (S::kNarrow) {
      compute_narrow_tiles<S>(&out_map, job, sh, group - 1);
    } else {
      compute_tiles<S>(&out_map, job, sh, group - 1);
    }
  }
}

/* ---- host ---- */

template <typename T, typename Config>
tg_status run_tiles_of(const tg_context *ctx, const tg_attention_fwd_args *a,
                       const attention_fwd_plan &p)
{
  using S = fwd_tile<T, Config>;
  CUtensorMap q, k, v, out;
  const page_map maps[] = {
      {&q, &a->q, kGroupRows},
      {&k, &a->k, S::kKeys},
      {&v, &a->v, S::kKeys},
      {&out, &a->out, kGroupRows},
  };
  tg_status status = make_page_maps(ctx, maps);
  if (status == TG_OK) {
    status = launch_kernel(ctx, p.counted || p.lengths, attention_fwd_tiles_kernel<T, Config>,
                           dim3((unsigned)p.blocks), S::kThreads, sizeof(fwd_shared<S>), q, k, v,
                           out, job_of(a, p));
  }
  return status;
}

template <typename Config>
tg_status run_tiles(const tg_context *ctx, const tg_attention_fwd_args *a,
                    const attention_fwd_plan &p)
{
  return a->q.dtype == TG_F16 ? run_tiles_of<f16, Config>(ctx, a, p)
                              : run_tiles_of<bf16, Config>(ctx, a, p);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
