/** Attention forward on Hopper, split-KV (arXiv:2311.01282): where a sequence has fewer tiles of
 * queries than the GPU has multiprocessors, its keys are split. This file computes which blocks a
 * work item has of a split, and writes the partial sums that attention_fwd_add_sm90.cuh adds. */
#ifndef TGI_OPS_ATTENTION_FWD_SPLITS_SM90_CUH
#define TGI_OPS_ATTENTION_FWD_SPLITS_SM90_CUH

#include "ops/attention/cuda/attention_fwd_job.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** Restricts a tile to a split's blocks of keys. Splits divide the extent, so a row's splits do not
 * depend on its tile. */
__device__ __forceinline__ void take_split(const fwd_job &job, int split, query_place &x)
{
  const int blocks = (job.work.extent + job.work.keys - 1) / job.work.keys;
  const int low = max(x.low_block, blocks * split / job.splits);
  const int high = min(x.high_block, blocks * (split + 1) / job.splits);
  x.low_block = low;
  x.high_block = max(low, high);
}

/** Writes a warp group's partial sums. `o`: accumulators of the thread's rows row0 and row0 + 8. */
template <int kN>
__device__ __forceinline__ void leave_split(const fwd_job &job, const query_place &x, int split,
                                            int row0, const row_state &state, const float (&o)[kN])
{
  const int lane = threadIdx.x % kWarp % 4;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float sum = state.sum[r];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    const int row = row0 + 8 * r;
    if (row < x.rows) {
      const int64_t pair = (int64_t)x.q_index * job.work.q_heads + x.head;
      const int64_t at = (pair * job.splits + split) * job.work.nq + x.q_row + row;
      float *const to = job.sums + at * job.from.v_dim + 2 * lane;
      if (lane == 0) {
        __stcg(job.ends + at, make_float2(state.top[r], sum));
      }
#pragma unroll
      for (int i = 0; i < kN / 4; i++) {
        if (8 * i < job.from.v_dim) {
          __stcg(reinterpret_cast<float2 *>(to + 8 * i),
                 make_float2(o[4 * i + 2 * r], o[4 * i + 2 * r + 1]));
        }
      }
    }
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
