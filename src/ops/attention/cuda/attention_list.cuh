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

__device__ inline bool listed_place(const attention_call &c, const query_work &w, int64_t place,
                                    query_place &x)
{
  int64_t number;
  const tgi_attention_sequence s =
      sequence_at(c, sequence_of_place(c, false, place, 1, w.size, &number));
  const int64_t row = number * w.size;
  if (row >= s.nq) {
    return false;
  }
  x.q_row = (int)(s.q_first + row);
  x.rows = (int)(s.nq - row);
  x.q_index = (int)s.q_index;
  x.k_row = (int)s.k_first;
  x.k_index = (int)s.k_index;
  x.first = (int)s.first;
  x.end = (int)(s.first + s.count);
  x.position = near_position(s.position + row);
  x.state = s.count < 0 ? kOutOfRange : kFine;
  x.head = 0;
  set_blocks(w.rule, x, w.size, w.keys);
  return true;
}

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
