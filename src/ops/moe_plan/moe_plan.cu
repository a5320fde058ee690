/* Plan of a mixture of experts on CUDA.
 *
 * Method     A stable counting sort by blocks of 512 slots, a warp for each: it counts its
 *            experts; then a warp for each expert turns the counts into its first place in
 *            each block; then one block adds up the experts before; then each warp places its
 *            slots, 32 at a time, equal ones in the order of their lanes. A count or place
 *            belongs to one warp at a time: no atomics. It is in shared memory below 1024
 *            experts, and a warp loads all of its indices at once.
 * Work       4 blocks of slots, or 4 experts, a block of threads.
 * Bound      Latency: of four kernels, and of 16 steps of a warp in shared memory.
 */
#include "cuda/fault.cuh"
#include "cuda/int_list.cuh"
#include "cuda/reduce.cuh"
#include "ops/kernels.cuh"

namespace
{

constexpr int kSlots = 512; /* of a warp */
constexpr int kThreads = 128, kWarps = kThreads / kWarp;
constexpr int kSteps = kSlots / kWarp;
constexpr int kShared = 1024; /* counts of a warp in shared memory */
constexpr int kSumThreads = 1024;

struct plan_job {
  int_list indices;
  int64_t slots, blocks, indices_step;
  int k, experts;
  int32_t *places; /* [blocks, experts + 1]: counts, then places among the expert's slots */
  int32_t *totals; /* [experts + 1] */
  int32_t *offsets, *slot, *row;
  fault_site bad_index;
};

__device__ __forceinline__ int64_t index_of(const plan_job &job, int64_t s)
{
  const int t = (int)s / job.k, j = (int)s - t * job.k;
  return int_at(job.indices, t * job.indices_step + j);
}

/* Experts of the slots s, s + 32, ...: `experts` if dropped, or no expert at all; -1 behind the
 * end. `check`: what is no expert is recorded. */
struct lane_experts {
  int of[kSteps];

  __device__ __forceinline__ lane_experts(const plan_job &job, int64_t s, bool check)
  {
    int64_t given[kSteps];
#pragma unroll
    for (int i = 0; i < kSteps; i++) {
      const bool there = s + i * kWarp < job.slots;
      given[i] = there ? index_of(job, s + i * kWarp) : -1;
      of[i] = there ? (given[i] >= 0 && given[i] < job.experts ? (int)given[i] : job.experts) : -1;
    }
#pragma unroll
    for (int i = 0; i < kSteps; i++) {
      if (check && of[i] == job.experts && given[i] != job.experts) {
        record_fault(job.bad_index, s + i * kWarp, given[i], 0, job.experts);
      }
    }
  }
};

__device__ __forceinline__ int32_t *places_of(const plan_job &job, int64_t block)
{
  return job.places + block * (job.experts + 1);
}

/* Where a warp counts: in shared memory, if the experts fit. */
__device__ __forceinline__ int32_t *counts_of(const plan_job &job, int32_t *shared, int64_t block)
{
  return job.experts < kShared ? shared + threadIdx.x / kWarp * kShared : places_of(job, block);
}

__global__ void __launch_bounds__(kThreads)
    moe_plan_fwd_count_kernel(const __grid_constant__ plan_job job)
{
  __shared__ int32_t shared[kWarps * kShared];
  const int lane = threadIdx.x % kWarp;
  const int64_t stride = (int64_t)gridDim.x * kWarps;
  for (int64_t b = (int64_t)blockIdx.x * kWarps + threadIdx.x / kWarp; b < job.blocks;
       b += stride) {
    const lane_experts experts(job, b * kSlots + lane, true);
    int32_t *count = counts_of(job, shared, b), *places = places_of(job, b);
    for (int e = lane; e <= job.experts; e += kWarp) {
      count[e] = 0;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kSteps; i++) {
      const int e = experts.of[i];
      const unsigned same = __match_any_sync(kAllLanes, e);
      if (e >= 0 && lane == __ffs((int)same) - 1) {
        count[e] += __popc(same);
      }
      __syncwarp();
    }
    for (int e = lane; e <= job.experts && count != places; e += kWarp) {
      places[e] = count[e];
    }
    __syncwarp();
  }
}

/* A warp for an expert: counts become the sums of the blocks before. */
__global__ void __launch_bounds__(kThreads)
    moe_plan_fwd_scan_kernel(const __grid_constant__ plan_job job)
{
  const int lane = threadIdx.x % kWarp;
  const int64_t stride = (int64_t)gridDim.x * kWarps;
  for (int64_t e = (int64_t)blockIdx.x * kWarps + threadIdx.x / kWarp; e <= job.experts;
       e += stride) {
    int32_t before = 0;
    for (int64_t first = 0; first < job.blocks; first += kWarp) {
      const bool there = first + lane < job.blocks;
      const int32_t count = there ? places_of(job, first + lane)[e] : 0;
      int32_t up_to = count;
#pragma unroll
      for (int step = 1; step < kWarp; step *= 2) {
        const int32_t other = __shfl_up_sync(kAllLanes, up_to, step);
        up_to += lane >= step ? other : 0;
      }
      if (there) {
        places_of(job, first + lane)[e] = before + up_to - count;
      }
      before += __shfl_sync(kAllLanes, up_to, kWarp - 1);
    }
    if (lane == 0) {
      job.totals[e] = before;
    }
  }
}

/* One block: offsets[e] is the sum of the totals before e. */
__global__ void __launch_bounds__(kSumThreads)
    moe_plan_fwd_offsets_kernel(const __grid_constant__ plan_job job)
{
  __shared__ int32_t warps[kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  int32_t before = 0; /* of the experts of earlier rounds */
  for (int64_t first = 0; first <= job.experts; first += kSumThreads) {
    const int64_t e = first + threadIdx.x;
    const int32_t total = e <= job.experts ? job.totals[e] : 0;
    int32_t up_to = total;
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const int32_t other = __shfl_up_sync(kAllLanes, up_to, step);
      up_to += lane >= step ? other : 0;
    }
    if (lane == kWarp - 1) {
      warps[warp] = up_to;
    }
    __syncthreads();
    int32_t all = 0, earlier = 0;
    for (int w = 0; w < kSumThreads / kWarp; w++) {
      earlier += w < warp ? warps[w] : 0;
      all += warps[w];
    }
    if (e <= job.experts) {
      job.offsets[e] = before + earlier + up_to - total;
    }
    before += all;
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads)
    moe_plan_fwd_place_kernel(const __grid_constant__ plan_job job)
{
  __shared__ int32_t shared[kWarps * kShared];
  const int lane = threadIdx.x % kWarp;
  const int64_t stride = (int64_t)gridDim.x * kWarps;
  for (int64_t b = (int64_t)blockIdx.x * kWarps + threadIdx.x / kWarp; b < job.blocks;
       b += stride) {
    const lane_experts experts(job, b * kSlots + lane, false);
    int32_t *place = counts_of(job, shared, b), *places = places_of(job, b);
    for (int e = lane; e <= job.experts; e += kWarp) {
      place[e] = places[e] + job.offsets[e];
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kSteps; i++) {
      const int e = experts.of[i];
      const int64_t s = b * kSlots + i * kWarp + lane;
      const unsigned same = __match_any_sync(kAllLanes, e);
      if (e >= 0) {
        const int32_t r = place[e] + __popc(same & ((1u << lane) - 1));
        job.slot[r] = (int32_t)s;
        job.row[s] = e < job.experts ? r : -1;
      }
      __syncwarp(); /* all have read the place */
      if (e >= 0 && lane == __ffs((int)same) - 1) {
        place[e] += __popc(same);
      }
      __syncwarp();
    }
  }
}

int64_t blocks_of(const tg_moe_plan_fwd_args *a)
{
  return divide_up(a->slot.shape[0], (int64_t)kSlots);
}

} // namespace

extern "C" size_t TGI_WORKSPACE(moe_plan_fwd)(const tg_context *, const tg_moe_plan_fwd_args *a)
{
  return (size_t)((blocks_of(a) + 1) * a->offsets.shape[0]) * sizeof(int32_t);
}

extern "C" tg_status TGI_KERNEL(moe_plan_fwd)(const tg_context *ctx, const tg_moe_plan_fwd_args *a)
{
  plan_job job = {};
  job.indices = int_list_of(&a->indices);
  job.slots = a->slot.shape[0];
  job.blocks = blocks_of(a);
  job.indices_step = tgi_stride(&a->indices, 0);
  job.k = (int)a->indices.shape[1];
  job.experts = (int)(a->offsets.shape[0] - 1);
  job.totals = static_cast<int32_t *>(a->workspace);
  job.places = job.totals + job.experts + 1;
  job.offsets = static_cast<int32_t *>(a->offsets.data);
  job.slot = static_cast<int32_t *>(a->slot.data);
  job.row = static_cast<int32_t *>(a->row.data);
  job.bad_index = FAULT_SITE(ctx, moe_plan_fwd, indices);
  const dim3 blocks = grid_of(divide_up(job.blocks, (int64_t)kWarps));
  const dim3 experts = grid_of(divide_up((int64_t)job.experts + 1, (int64_t)kWarps));
  tg_status status = launch(ctx, moe_plan_fwd_count_kernel, blocks, kThreads, 0, job);
  if (status == TG_OK) {
    status = launch(ctx, moe_plan_fwd_scan_kernel, experts, kThreads, 0, job);
  }
  if (status == TG_OK) {
    status = launch(ctx, moe_plan_fwd_offsets_kernel, dim3(1), kSumThreads, 0, job);
  }
  if (status == TG_OK) {
    status = launch(ctx, moe_plan_fwd_place_kernel, blocks, kThreads, 0, job);
  }
  return status;
}

extern "C" void TGI_PLAN(moe_plan_fwd)(const tg_context *, const tg_moe_plan_fwd_args *a,
                                       char *text, size_t bytes)
{
  snprintf(text, bytes, "%lld blocks of %d slots, a warp each", (long long)blocks_of(a), kSlots);
}
