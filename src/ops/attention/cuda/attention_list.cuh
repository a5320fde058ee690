/** The scheduler of calls with lengths on the device: one block lists the tiles of all sequences,
 * most blocks of keys first, by a counting sort. Compiled where it is launched. Bound by latency.
 */
#ifndef TGI_OPS_ATTENTION_LIST_CUH
#define TGI_OPS_ATTENTION_LIST_CUH

#include "ops/attention/cuda/attention_work.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kListThreads = 1024;

/** One block. Tiles of the same cost class are in any order: no result depends on it. */
__global__ void __launch_bounds__(kListThreads)
    attention_list_kernel(const attention_call c, const query_work w, int64_t places, int shift)
{
  __shared__ int first[kCosts];
  const int t = threadIdx.x;
  query_place x;
  first[t] = 0;
  await_kernel_before();
  let_next_begin();
  __syncthreads();
  for (int64_t place = t; place < places; place += kListThreads) {
    if (listed_place(c, w, place, x)) {
      atomicAdd(&first[kCosts - 1 - min((x.high_block - x.low_block) >> shift, kCosts - 1)], 1);
    }
  }
  __syncthreads();
  for (int step = 1; step < kCosts; step *= 2) { /* inclusive prefix sum over classes */
    const int before = t >= step ? first[t - step] : 0;
    __syncthreads();
    first[t] += before;
    __syncthreads();
  }
  if (t == 0) {
    w.list->count = first[kCosts - 1];
    w.list->taken = 0;
  }
  const int before = t > 0 ? first[t - 1] : 0;
  __syncthreads();
  first[t] = before;
  __syncthreads();
  for (int64_t place = t; place < places; place += kListThreads) {
    if (listed_place(c, w, place, x)) {
      const int cost = kCosts - 1 - min((x.high_block - x.low_block) >> shift, kCosts - 1);
      w.list->place[atomicAdd(&first[cost], 1)] = x;
    }
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
