/** Attention backward on Hopper: what comes before and after the tiles. */
#ifndef TGI_OPS_ATTENTION_BWD_SUMS_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_SUMS_SM90_CUH

#include "ops/attention/attention_bwd_rows_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kSumThreads = 256;
constexpr int kRowLanes = 16; /* of a row in the kernel before */

/** minus and delta of each row, rows behind a sequence's end included; the items' places; and zeros
 * where the tiles add and count. A block for a tile of queries of a head. */
template <typename T>
__global__ void __launch_bounds__(kSumThreads) attention_bwd_terms_kernel(const bwd_job job)
{
  __shared__ place_found found;
  const int q_heads = (int)job.c.l.q_heads, v_dim = (int)job.c.l.v_dim;
  const int thread = threadIdx.x, chunk = thread % kRowLanes;
  for (int i = blockIdx.x * kSumThreads + thread; i <= job.items; i += gridDim.x * kSumThreads) {
    job.lost[i] = 0; /* and `taken`, the last one */
    if (i < job.items) {
      job.place[i] = place_of_item(job, i);
    }
  }
  for (int place = blockIdx.x; place < job.query_tiles * q_heads; place += gridDim.x) {
    const int tile = place / q_heads, head = place % q_heads;
    find_place(job.c, false, tile, 1, job.queries, found);
    const tgi_attention_sequence &s = found.s;
    const int64_t first = found.number * job.queries, base = (int64_t)place * job.queries;
    for (int r = thread / kRowLanes; r < job.queries; r += kSumThreads / kRowLanes) {
      const int64_t row = first + r;
      float delta = 0, lse = -CUDART_INF_F;
      const int64_t at = (s.q_index * q_heads + head) * job.c.l.nq + s.q_first + row;
      if (row < s.nq) {
        lse = job.lse[at];
        for (int c = chunk * kChunk; c < v_dim; c += kRowLanes * kChunk) {
          float x[kChunk], y[kChunk];
          load(x, reinterpret_cast<const T *>(job.dout.data) +
                      job.dout.at(s.q_index, s.q_first + row, head) + c);
          load(y, reinterpret_cast<const T *>(job.out.data) +
                      job.out.at(s.q_index, s.q_first + row, head) + c);
#pragma unroll
          for (int k = 0; k < kChunk; k++) {
            delta = fmaf(x[k], y[k], delta);
          }
        }
      }
#pragma unroll
      for (int step = kRowLanes / 2; step > 0; step /= 2) {
        delta += __shfl_xor_sync(kAllLanes, delta, step);
      }
      if (chunk == 0) {
        const bool none = lse == -CUDART_INF_F;
        job.minus[base + r] = none ? -CUDART_INF_F : -lse * kLog2E;
        job.delta[base + r] = none ? 0.0f : delta;
        if (job.sink_delta && row < s.nq) {
          job.sink_delta[at] = delta;
        }
      }
    }
    if (job.dq.data) {
      float4 *sums =
          reinterpret_cast<float4 *>(job.sums + base * job.columns);
      for (int i = thread; i < job.queries * job.columns / 4; i += kSumThreads) {
        sums[i] = make_float4(0, 0, 0, 0);
      }
    }
    if (job.turns && thread < kSumGroups) {
      job.turns[(int64_t)place * kSumGroups + thread] = 0;
    }
  }
}

/** dq of a tile of a head, from its sums: out of the order of registers (wgmma.cuh) by way of
 * shared memory, [queries][columns + 8]. */
template <typename T>
__device__ __forceinline__ void finish_queries(const bwd_job &job, int place, place_found &found,
                                               T *rows)
{
  const int q_heads = (int)job.c.l.q_heads, head = place % q_heads, d = (int)job.c.l.head_dim;
  const int thread = threadIdx.x, lane = thread % kWarp, pitch = job.columns + 8;
  const int part = thread / (kSumThreads / 2), t = thread % (kSumThreads / 2);
  const bool paged = job.columns > 64; /* a part has a page of columns, or half of the queries */
  const int queries = paged ? job.queries : job.queries / 2;
  find_place(job.c, false, place / q_heads, 1, job.queries, found);
  const tgi_attention_sequence &s = found.s;
  const float by = s.count < 0 ? CUDART_NAN_F : job.scale;
  const float4 *from = reinterpret_cast<const float4 *>(
                           job.sums + (int64_t)place * job.queries * job.columns) +
                       part * queries * 16 + t;
  const int column = (paged ? 64 * part : 0) + 16 * (t / kWarp) + t % kWarp / 4;
  const int row0 = (paged ? 0 : part * queries) + 2 * (t % 4);
  for (int i = 0; i < queries / 8; i++) {
    const float4 v = from[i * (kSumThreads / 2)];
    T *to = rows + (row0 + 8 * i) * pitch + column;
    to[0] = from_f32<T>(v.x * by);
    to[pitch] = from_f32<T>(v.y * by);
    to[8] = from_f32<T>(v.z * by);
    to[pitch + 8] = from_f32<T>(v.w * by);
  }
  __syncthreads();
  const int64_t first = found.number * job.queries;
  for (int r = thread / kWarp; r < job.queries && first + r < s.nq; r += kSumThreads / kWarp) {
    float x[kChunk];
    load_chunk<T>(x, reinterpret_cast<const uint16_t *>(rows) + r * pitch, d);
    bool lost = false;
#pragma unroll
    for (int c = 0; c < kChunk; c++) {
      lost = lost || x[c] != x[c];
    }
    if (job.hides && s.count >= 0 && __any_sync(kAllLanes, lost)) {
      const int64_t at = (int64_t)place * job.queries + r;
      compute_query<T>(job, s, first + r, head, job.minus[at], job.delta[at]);
    } else if (lane * kChunk < d) {
      T *to = reinterpret_cast<T *>(job.dq.data) +
              job.dq.at(s.q_index, s.q_first + first + r, head);
      *reinterpret_cast<uint4 *>(to + lane * kChunk) =
          *reinterpret_cast<const uint4 *>(rows + r * pitch + lane * kChunk);
    }
  }
}

/** dq; and dk and dv once more where they have a NaN that may come from what is not seen. Blocks for
 * tiles of queries of a head first, then for items. */
template <typename T>
__global__ void __launch_bounds__(kSumThreads, 2)
    attention_bwd_finish_kernel(const bwd_job job, int places)
{
  extern __shared__ __align__(16) uint8_t memory[];
  __shared__ place_found found;
  for (int i = blockIdx.x; i < places + job.items; i += gridDim.x) {
    if (i < places) {
      finish_queries<T>(job, i, found, reinterpret_cast<T *>(memory));
    } else if (job.hides && job.lost[i - places]) {
      const key_place x = job.place[i - places];
      for (int r = threadIdx.x / kWarp; r < min(x.rows, kKeyRows) && x.state == kFine;
           r += kSumThreads / kWarp) {
        compute_key<T>(job, x, r);
      }
    }
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
