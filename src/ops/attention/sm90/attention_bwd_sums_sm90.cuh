/** Attention backward on Hopper: the kernels before and after the tiles. Before: lse and delta of
 * each row as tiles need them, work items, zeroed counters and sums. After: the sums of dq are
 * rounded. Both are bound by memory. Last, rows with a NaN are recomputed, where there are any. */
#ifndef TGI_OPS_ATTENTION_BWD_SUMS_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_SUMS_SM90_CUH

#include "ops/attention/sm90/attention_bwd_rows_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kSumThreads = 256, kHalf = kSumThreads / 2;
constexpr int kPageColumns = 64;

/** The sequence of a tile of queries, and the index of the tile in it. */
__device__ __forceinline__ tgi_attention_sequence sequence_of_tile(const bwd_job &job, int tile,
                                                                   int *number)
{
  if (job.c.records) {
    int64_t found;
    const int64_t b = sequence_of_place(job.c, false, tile, 1, job.queries, &found);
    *number = (int)found;
    return sequence_at(job.c, b);
  }
  const int each = job.query_tiles / (int)job.c.l.batch;
  *number = tile % each;
  return sequence_at(job.c, tile / each);
}

template <typename T> __device__ __forceinline__ float dot_of_words(uint4 a, uint4 b)
{
  const pack<T, kChunk> x = *reinterpret_cast<const pack<T, kChunk> *>(&a);
  const pack<T, kChunk> y = *reinterpret_cast<const pack<T, kChunk> *>(&b);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kChunk; i++) {
    sum = fmaf(to_f32(x.e[i]), to_f32(y.e[i]), sum);
  }
  return sum;
}

/** Writes dq of a tile of which no row sees a key: 0, or NaN where the sequence's data is out of
 * range. */
template <typename T>
__device__ __forceinline__ void fill_unseen(const bwd_job &job, const tgi_attention_sequence &s,
                                            int first, int rows, int head)
{
  const int d = (int)job.c.l.head_dim;
  int64_t low = 0, high = 0, none;
  if (rows > 0 && s.count >= 0) {
    visible_keys(job.c.l, s, first, &low, &none);
    visible_keys(job.c.l, s, first + rows - 1, &none, &high);
  }
  if (high <= low && job.dq.data) {
    const T value = from_f32<T>(s.count < 0 ? CUDART_NAN_F : 0.0f);
    for (int e = threadIdx.x; e < rows * d; e += kSumThreads) {
      const int64_t row = s.q_first + first + e / d;
      reinterpret_cast<T *>(job.dq.data)[job.dq.at(s.q_index, row, head) + e % d] = value;
    }
  }
}

/** Writes minus and delta of each row, rows after a sequence's end included; the work items'
 * places; zeros in counters and, in any order, in the sums of dq; and dq where no key is seen,
 * unless a pass rounds all of it. A block for a tile of queries of a head, kRowLanes lanes for a
 * row. */
template <typename T, int kRowLanes>
__global__ void __launch_bounds__(kSumThreads, 3) attention_bwd_terms_kernel(const bwd_job job)
{
  constexpr int kRows = kSumThreads / kRowLanes, kAtOnce = 4;
  const int q_heads = (int)job.c.l.q_heads, v_dim = (int)job.c.l.v_dim;
  const int thread = threadIdx.x, c = thread % kRowLanes * kChunk;
  await_kernel_before();
  let_next_begin();
  for (int i = blockIdx.x * kSumThreads + thread; i < max(job.counts, job.items);
       i += gridDim.x * kSumThreads) {
    if (i < job.counts) {
      job.lost[i] = 0; /* and the counters after it */
    }
    if (i < job.items) {
      job.place[i] = place_of_item(job, i);
    }
  }
  for (int place = blockIdx.x; place < job.query_tiles * q_heads; place += gridDim.x) {
    const int tile = place / q_heads, head = place - tile * q_heads;
    int number;
    const tgi_attention_sequence s = sequence_of_tile(job, tile, &number);
    const int first = number * job.queries, rows = min((int)s.nq - first, job.queries);
    const int64_t base = (int64_t)place * job.queries, row0 = s.q_first + first;
    const int64_t at = (s.q_index * q_heads + head) * job.c.l.nq + row0;
    const uint16_t *dout = job.dout.data + job.dout.at(s.q_index, row0, head) + c;
    const uint16_t *out = job.out.data + job.out.at(s.q_index, row0, head) + c;
#pragma unroll 1
    for (int r0 = thread / kRowLanes; r0 < job.queries; r0 += kAtOnce * kRows) {
      uint4 x[kAtOnce] = {}, y[kAtOnce] = {};
      float lse[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; k++) {
        const int r = r0 + k * kRows;
        lse[k] = r < rows ? job.lse[at + r] : -CUDART_INF_F;
        if (r < rows && c < v_dim) {
          x[k] = *reinterpret_cast<const uint4 *>(dout + r * job.dout.step[1]);
          y[k] = *reinterpret_cast<const uint4 *>(out + r * job.out.step[1]);
        }
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; k++) {
        const int r = r0 + k * kRows;
        float delta = dot_of_words<T>(x[k], y[k]);
#pragma unroll
        for (int step = kRowLanes / 2; step > 0; step /= 2) {
          delta += __shfl_xor_sync(kAllLanes, delta, step);
        }
        if (c == 0 && r < job.queries) {
          const bool none = lse[k] == -CUDART_INF_F;
          job.minus[base + r] = none ? -CUDART_INF_F : -lse[k] * kLog2E;
          job.delta[base + r] = none ? 0.0f : -delta;
          if (job.sink_delta && r < rows) {
            job.sink_delta[at + r] = delta;
          }
        }
      }
    }
    if (thread == 0) {
      job.turns[place] = job.lost_tile[place] = 0;
      if (job.second_from < kMostRows) {
        job.turns[place + job.query_tiles * q_heads] = 0;
      }
    }
    if (!job.ordered && job.dq.data) {
      const int sums = job.queries * job.columns / 4;
      float4 *to = reinterpret_cast<float4 *>(job.sums) + (int64_t)place * sums;
      for (int e = thread; e < sums; e += kSumThreads) {
        to[e] = make_float4(0, 0, 0, 0);
      }
    }
    if (job.hides && !job.rounds) {
      fill_unseen<T>(job, s, first, rows, head);
    }
  }
}

/** Rounds the sums of dq, with kTwo two of them: 0 where nothing was added, NaN where the
 * sequence's data is out of range. A block for a tile of a head; rows are transposed through shared
 * memory. */
template <typename T, bool kTwo>
__global__ void __launch_bounds__(kSumThreads) attention_bwd_round_kernel(const bwd_job job)
{
  constexpr int kMostElements = 80 * (128 + kChunk); /* padding against bank conflicts */
  __shared__ __align__(16) T tile[kMostElements];
  const int q_heads = (int)job.c.l.q_heads, queries = job.queries, columns = job.columns;
  const int row_step = columns + kChunk, pages = columns / kPageColumns;
  const int part = pages == 2 ? queries : queries / 2; /* rows of a warp group's page */
  const int t = threadIdx.x % kHalf, half = threadIdx.x / kHalf, lane = t % kWarp;
  const int column = (pages == 2 ? kPageColumns * half : 0) + 16 * (t / kWarp) + lane / 4;
  const int row = (pages == 2 ? 0 : half * part) + 2 * (lane % 4);
  const int places = job.query_tiles * q_heads;
  await_kernel_before();
  let_next_begin();
  for (int place = blockIdx.x; place < job.query_tiles * q_heads; place += gridDim.x) {
    const int head = place % q_heads;
    int number;
    const tgi_attention_sequence s = sequence_of_tile(job, place / q_heads, &number);
    const int first = number * queries, rows = min((int)s.nq - first, queries);
    const bool added = !job.ordered || job.turns[place] > 0;
    const bool more = kTwo && job.turns[place + places] > 0;
    const float by = s.count < 0 ? CUDART_NAN_F : job.scale;
    const float4 *from =
        reinterpret_cast<const float4 *>(job.sums + (int64_t)place * queries * columns) +
        half * part * (kPageColumns / 4) + t;
    bool lost = false;
#pragma unroll 4
    for (int i = 0; i < part / 8; i++) {
      float4 v = added ? from[i * kHalf] : make_float4(0, 0, 0, 0);
      if (more) {
        const float4 w = from[i * kHalf + (int64_t)places * (queries * columns / 4)];
        v = make_float4(v.x + w.x, v.y + w.y, v.z + w.z, v.w + w.w);
      }
      T *const to = tile + (row + 8 * i) * row_step + column;
      to[0] = from_f32<T>(v.x * by);
      to[row_step] = from_f32<T>(v.y * by);
      to[8] = from_f32<T>(v.z * by);
      to[row_step + 8] = from_f32<T>(v.w * by);
      lost = lost || v.x != v.x || v.y != v.y || v.z != v.z || v.w != v.w;
    }
    if (lost) {
      job.lost_tile[place] = 1;
    }
    __syncthreads();
    const int chunks = (int)job.c.l.head_dim / kChunk;
    for (int e = threadIdx.x; e < rows * chunks; e += kSumThreads) {
      const int r = e / chunks, c = e % chunks * kChunk;
      uint16_t *const to = job.dq.data + job.dq.at(s.q_index, s.q_first + first + r, head) + c;
      *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(tile + r * row_step + c);
    }
    __syncthreads();
  }
}

/** Recomputes rows of a tile's dq that have a NaN. */
template <typename T>
__device__ __forceinline__ void repair_queries(const bwd_job &job, int place, place_found &found)
{
  const int q_heads = (int)job.c.l.q_heads, head = place % q_heads, d = (int)job.c.l.head_dim;
  find_place(job.c, false, place / q_heads, 1, job.queries, found);
  const tgi_attention_sequence &s = found.s;
  const int64_t first = found.number * job.queries;
  for (int r = threadIdx.x / kWarp; r < job.queries && first + r < s.nq; r += kSumThreads / kWarp) {
    float x[kChunk];
    load_chunk<T>(x, job.dq.data + job.dq.at(s.q_index, s.q_first + first + r, head), d);
    bool lost = false;
#pragma unroll
    for (int c = 0; c < kChunk; c++) {
      lost = lost || x[c] != x[c];
    }
    if (__any_sync(kAllLanes, lost)) {
      const int64_t at = (int64_t)place * job.queries + r;
      compute_query<T>(job, s, first + r, head, job.minus[at], job.delta[at]);
    }
  }
}

/** Recomputes what may have a NaN from masked pairs: first tiles of dq, `places` of them, then
 * blocks of keys. A block scans kSumThreads flags at a time. */
template <typename T>
__global__ void __launch_bounds__(kSumThreads, 2)
    attention_bwd_repair_kernel(const bwd_job job, int places)
{
  __shared__ place_found found;
  __shared__ int flags[kSumThreads];
  const int all = places + job.items / job.parts;
  await_kernel_before();
  for (int base = blockIdx.x * kSumThreads; base < all; base += gridDim.x * kSumThreads) {
    const int i = base + threadIdx.x;
    const int mine = i >= all ? 0 : i < places ? job.lost_tile[i] : job.lost[i - places];
    flags[threadIdx.x] = mine;
    if (!__syncthreads_or(mine)) {
      continue;
    }
    for (int k = 0; k < kSumThreads; k++) {
      if (!flags[k]) {
        continue;
      }
      if (base + k < places) {
        repair_queries<T>(job, base + k, found);
        continue;
      }
      const key_place x = job.place[(base + k - places) * job.parts];
      for (int r = threadIdx.x / kWarp; r < min(x.rows, job.keys) && x.state == kFine;
           r += kSumThreads / kWarp) {
        compute_key<T>(job, x, r);
      }
    }
    __syncthreads();
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
