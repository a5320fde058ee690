/** The records of a call's sequences: a kernel of one block, which reads and checks lengths on the
 * device. Compiled where it is launched. Bound by latency. */
#ifndef TGI_OPS_ATTENTION_RECORDS_CUH
#define TGI_OPS_ATTENTION_RECORDS_CUH

#include "ops/attention/cuda/attention_sequences.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kRecordThreads = 1024;

/** Checks cu[0 .. batch] against `rows`; true if an element that this thread checked is out of
 * range. */
__device__ inline bool check_lengths(const int32_t *cu, int64_t batch, int64_t rows,
                                     fault_site site)
{
  bool bad = false;
  for (int64_t b = threadIdx.x; cu && b <= batch; b += blockDim.x) {
    const int64_t low = b == 0 ? 0 : cu[b - 1], high = b == 0 ? 0 : rows, value = cu[b];
    if (value < low || value > high) {
      record_fault(site, b, value, low, high);
      bad = true;
    } else if (b == batch && value != rows) {
      record_fault(site, b, value, rows, rows);
      bad = true;
    }
  }
  return bad;
}

/** Checks the keys of sequence b, which all lanes of a warp have read; true if they are out of
 * range. */
__device__ inline bool check_keys(const tgi_attention_layout &l, const tgi_attention_sequence &s,
                                  const attention_sites &sites)
{
  const int lane = threadIdx.x % kWarp;
  if (s.first < 0 || s.first > s.extent) {
    if (lane == 0) {
      record_fault(sites.key_start, s.b, s.first, 0, s.extent);
    }
    return true;
  }
  if (s.count < 0 || s.count > s.extent - s.first) {
    if (lane == 0) {
      record_fault(sites.key_count, s.b, s.count, 0, s.extent - s.first);
    }
    return true;
  }
  bool bad = false;
  if (l.has_table && s.count > 0) {
    const int64_t last = (s.first + s.count - 1) / l.block_size;
    for (int64_t i = s.first / l.block_size + lane; i <= last; i += kWarp) {
      const int64_t index = s.b * l.max_blocks + i, block = l.block_table[index];
      if (block < 0 || block >= l.num_blocks) {
        record_fault(sites.block_table, index, block, 0, l.num_blocks - 1);
        bad = true;
      }
    }
  }
  return __any_sync(kAllLanes, bad);
}

/** One block. With bad lengths the owner of each row is unknown: sequence 0 gets all rows. */
__global__ void __launch_bounds__(kRecordThreads)
    attention_sequences_kernel(const tgi_attention_layout l, const attention_sites sites,
                               tgi_attention_sequence *to)
{
  let_next_begin();
  const bool bad_q = check_lengths(l.cu_q, l.batch, l.nq, sites.cu_q);
  const bool bad_k = check_lengths(l.cu_k, l.batch, l.extent, sites.cu_k);
  const bool none = __syncthreads_or(bad_q || bad_k);
  for (int64_t b = threadIdx.x / kWarp; b < l.batch; b += kRecordThreads / kWarp) {
    tgi_attention_sequence s = {b, b, 0, l.nq, b, 0, l.extent, 0, -1, 0};
    if (none) {
      if (l.packed_q) {
        s.q_index = 0;
        s.q_first = b == 0 ? 0 : l.nq;
        s.nq = b == 0 ? l.nq : 0;
      }
      if (l.packed_k) {
        s.k_index = 0;
        s.k_first = b == 0 ? 0 : l.extent;
        s.extent = b == 0 ? l.extent : 0;
      }
    } else {
      s = read_sequence(l, b);
      s.count = check_keys(l, s, sites) ? -1 : s.count;
    }
    if (threadIdx.x % kWarp == 0) {
      to[b] = s;
    }
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
