/** The passes of sampling over a row: reading its z, sums of segments and the id at a mark in them,
 * cuts by rank. All threads of a block work on one row. */
#ifndef TGI_OPS_SAMPLE_ROWS_CUH
#define TGI_OPS_SAMPLE_ROWS_CUH

#include "cuda/fault.cuh"
#include "cuda/int_list.cuh"
#include "cuda/reduce.cuh"
#include "cuda/vec.cuh"
#include "ops/sample/sample_draw.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{ /* each entry of the chain has kernels of its own */

constexpr int kThreads = 1024, kWarps = kThreads / kWarp;
constexpr int kEach = 8, kSegment = kWarp * kEach; /* ids of a lane and of a warp */
constexpr int kBuckets = 2048;                     /* two a thread */
constexpr int kSlots = 256;                        /* blocks that have a part of the workspace */

template <typename T> struct fwd_job {
  const T *logits;
  int_list history, history_lengths, positions, seeds, ids; /* data NULL: absent */
  float *log_prob;
  char *workspace;
  int64_t rows, step, room, history_step, seed, position, slot_bytes;
  int vocab, segments;
  float temperature, top_p, min_p, repetition_penalty;
  int top_k;
  bool aligned, penalised;
  fault_site bad_row, bad_history, bad_length;
};

/* Shared memory of a block. */
struct block_memory {
  unsigned low[kBuckets], high[kBuckets]; /* halves of sums of 64 bits */
  uint64_t warp_sum[kWarps];
  float warp_most[kWarps];
  uint64_t before, amount, total; /* of choose_bucket */
  int bucket, found, bad;
};

/* A row at work. */
template <typename T> struct row {
  const T *logits;
  const unsigned char *penalised; /* a bit for each id; NULL: none */
  uint64_t *segment;              /* [segments] */
  float largest;
};

/* ---- reading ---- */

/* z of 8 ids from `first` on; how many there are. */
template <typename T>
__device__ __forceinline__ int read_ids(float (&z)[kEach], const fwd_job<T> &job, const row<T> &r,
                                        int first)
{
  const int n = first >= job.vocab ? 0 : job.vocab - first < kEach ? job.vocab - first : kEach;
  if (n == 0) {
    return 0;
  }
  if (job.aligned && n == kEach) {
#pragma unroll
    for (int k = 0; k < kEach; k += kLanes<T>) {
      float part[kLanes<T>];
      load(part, r.logits + first + k);
#pragma unroll
      for (int i = 0; i < kLanes<T>; i++) {
        z[k + i] = part[i];
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      z[i] = i < n ? to_f32(r.logits[first + i]) : 0.0f;
    }
  }
  const unsigned bits = r.penalised ? __ldcg(r.penalised + first / 8) : 0;
  if (bits) {
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      z[i] = bits >> i & 1 ? penalise(z[i], job.repetition_penalty) : z[i];
    }
  }
  return n;
}

/* Visits each id of the row once: visit(z, id). Whole warps go through the same segments. */
template <typename T, typename Visit>
__device__ __forceinline__ void visit_ids(const fwd_job<T> &job, const row<T> &r, Visit visit)
{
  const int lane = threadIdx.x % kWarp;
#pragma unroll 1
  for (int s = threadIdx.x / kWarp; s < job.segments; s += kWarps) {
    const int first = s * kSegment + lane * kEach;
    float z[kEach];
    const int n = read_ids(z, job, r, first);
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      if (i < n) {
        visit(z[i], first + i);
      }
    }
  }
}

/* Checks a row's history and sets the bits of its ids; false: a length or an id is out of range. */
template <typename T>
__device__ bool read_history(const fwd_job<T> &job, int64_t i, unsigned *bits, block_memory *m)
{
  if (threadIdx.x == 0) {
    m->bad = 0;
  }
  for (int k = threadIdx.x; job.penalised && k < (job.vocab + 31) / 32; k += kThreads) {
    bits[k] = 0;
  }
  __syncthreads();
  const int64_t length = !job.history.data          ? 0
                         : job.history_lengths.data ? int_at(job.history_lengths, i)
                                                    : job.room;
  if (length < 0 || length > job.room) {
    if (threadIdx.x == 0) {
      record_fault(job.bad_length, i, length, 0, job.room);
    }
    return false;
  }
  for (int64_t k = threadIdx.x; k < length; k += kThreads) {
    const int64_t id = int_at(job.history, i * job.history_step + k);
    if (id < 0 || id >= job.vocab) {
      record_fault(job.bad_history, i * job.room + k, id, 0, job.vocab - 1);
      m->bad = 1;
    } else if (job.penalised) {
      atomicOr(&bits[id / 32], 1u << (id % 32));
    }
  }
  __syncthreads();
  return !m->bad;
}

/* ---- sums ---- */

__device__ __forceinline__ uint64_t scan_warp(uint64_t v)
{
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const uint64_t other = __shfl_up_sync(kAllLanes, (unsigned long long)v, step);
    v += lane >= step ? other : 0;
  }
  return v;
}

/* The sum of this thread's value and those of all threads before it. */
__device__ __forceinline__ uint64_t scan_block(uint64_t v, block_memory *m)
{
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  v = scan_warp(v);
  __syncthreads();
  if (lane == kWarp - 1) {
    m->warp_sum[warp] = v;
  }
  __syncthreads();
  for (int w = 0; w < warp; w++) {
    v += m->warp_sum[w];
  }
  return v;
}

/* The sums of amount(z, id) of each segment; their total, in every thread. */
template <typename T, typename Amount>
__device__ __forceinline__ uint64_t sum_segments(const fwd_job<T> &job, const row<T> &r,
                                                 block_memory *m, Amount amount)
{
  const int lane = threadIdx.x % kWarp;
  uint64_t mine = 0;
#pragma unroll 1
  for (int s = threadIdx.x / kWarp; s < job.segments; s += kWarps) {
    float z[kEach];
    const int first = s * kSegment + lane * kEach, n = read_ids(z, job, r, first);
    uint64_t sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      sum += i < n ? amount(z[i], first + i) : 0;
    }
    sum = warp_sum((unsigned long long)sum);
    if (lane == 0) {
      r.segment[s] = sum;
      mine += sum;
    }
  }
  mine = scan_block(mine, m);
  if (threadIdx.x == kThreads - 1) {
    m->total = mine;
  }
  __syncthreads();
  return m->total;
}

/* The id at which the running sum of amount(z, id), whose segments are summed, exceeds `mark`. */
template <typename T, typename Amount>
__device__ __forceinline__ int find_mark(const fwd_job<T> &job, const row<T> &r, block_memory *m,
                                         uint64_t mark, Amount amount)
{
  const int lane = threadIdx.x % kWarp;
  if (threadIdx.x < kWarp) {
    uint64_t before = 0;
    int segment = 0;
    for (int start = 0; start < job.segments; start += kWarp) {
      const uint64_t v = start + lane < job.segments ? r.segment[start + lane] : 0;
      const uint64_t up_to = scan_warp(v);
      const unsigned past = __ballot_sync(kAllLanes, before + up_to > mark);
      if (past) {
        const int at = __ffs((int)past) - 1;
        segment = start + at;
        before += __shfl_sync(kAllLanes, (unsigned long long)(up_to - v), at);
        break;
      }
      before += __shfl_sync(kAllLanes, (unsigned long long)up_to, kWarp - 1);
    }
    float z[kEach];
    uint64_t w[kEach], sum = 0;
    const int first = segment * kSegment + lane * kEach, n = read_ids(z, job, r, first);
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      w[i] = i < n ? amount(z[i], first + i) : 0;
      sum += w[i];
    }
    const uint64_t up_to = before + scan_warp(sum);
    const unsigned past = __ballot_sync(kAllLanes, up_to > mark);
    if (past && lane == __ffs((int)past) - 1) {
      uint64_t running = up_to - sum;
      int id = -1;
#pragma unroll
      for (int i = 0; i < kEach; i++) {
        running += w[i];
        id = id < 0 && running > mark ? first + i : id;
      }
      m->found = id;
    }
  }
  __syncthreads();
  const int found = m->found;
  __syncthreads();
  return found;
}

/* ---- cuts by rank ---- */

__device__ __forceinline__ void add_to_bucket(block_memory *m, uint32_t b, uint64_t amount)
{
  const unsigned low = (unsigned)amount, old = atomicAdd(&m->low[b], low);
  const unsigned high = (unsigned)(amount >> 32) + (old + low < old);
  if (high) {
    atomicAdd(&m->high[b], high);
  }
}

/* The bucket, from the highest down, that brings `sum` to the goal; what is before it and in it. */
__device__ __forceinline__ void choose_bucket(block_memory *m, uint64_t sum, uint64_t goal,
                                              uint64_t up_to)
{
  const int b = kBuckets - 1 - 2 * (int)threadIdx.x;
  const uint64_t first = (uint64_t)m->high[b] << 32 | m->low[b];
  const uint64_t second = (uint64_t)m->high[b - 1] << 32 | m->low[b - 1];
  const uint64_t before = sum + up_to - first - second;
  if (before < goal && sum + up_to >= goal) { /* one thread */
    const bool upper = before + first >= goal;
    m->bucket = upper ? b : b - 1;
    m->before = upper ? before : before + first;
    m->amount = upper ? first : second;
  }
  __syncthreads();
}

/* Leaves the first by rank that amount to a goal: a count, or a share of the weights' sum. */
template <bool kWeights, typename T>
__device__ void narrow(const fwd_job<T> &job, const row<T> &r, block_memory *m, rank_cut *cut)
{
  const rank_cut c = *cut;
  uint64_t sum = 0, goal = (uint64_t)job.top_k;
  uint32_t prefix = 0;
#pragma unroll 1
  for (int level = 0; level < 3; level++) {
    const int shift = level == 0 ? 21 : level == 1 ? 10 : 0, bits = level == 2 ? 10 : 11;
    for (int b = threadIdx.x; b < kBuckets; b += kThreads) {
      m->low[b] = m->high[b] = 0;
    }
    __syncthreads();
    visit_ids(job, r, [&](float z, int id) {
      const uint32_t key = rank_key(z);
      if (is_kept(c, key, id) && (uint32_t)((uint64_t)key >> (shift + bits)) == prefix) {
        const uint64_t w = kWeights ? sample_weight(z, r.largest, job.temperature) : 1;
        if (w) {
          add_to_bucket(m, key >> shift & ((1u << bits) - 1), w);
        }
      }
    });
    __syncthreads();
    const int b = kBuckets - 1 - 2 * (int)threadIdx.x;
    const uint64_t pair =
        ((uint64_t)m->high[b] << 32) + m->low[b] + ((uint64_t)m->high[b - 1] << 32) + m->low[b - 1];
    const uint64_t up_to = scan_block(pair, m);
    if (kWeights && level == 0) {
      if (threadIdx.x == kThreads - 1) {
        m->total = up_to;
      }
      __syncthreads();
      goal = share_of(job.top_p, m->total);
    }
    choose_bucket(m, sum, goal, up_to);
    prefix = prefix << bits | (uint32_t)m->bucket;
    sum = m->before;
    __syncthreads();
  }
  const uint64_t amount = m->amount;
  const uint64_t each = kWeights ? sample_weight(key_value(prefix), r.largest, job.temperature) : 1;
  const uint64_t wanted = (goal - sum + each - 1) / each; /* of the equal ones */
  int last = job.vocab - 1;
  if (wanted < amount / each) {
    const auto equal = [&](float z, int id) {
      return (uint64_t)(rank_key(z) == prefix && is_kept(c, prefix, id));
    };
    sum_segments(job, r, m, equal);
    last = find_mark(job, r, m, wanted - 1, equal);
  } else if (prefix == c.key && c.last < last) {
    last = c.last;
  }
  *cut = {prefix, last};
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
