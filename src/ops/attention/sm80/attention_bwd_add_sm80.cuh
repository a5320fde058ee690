/** Attention backward by mma.sync in no fixed order: a tile's part of dq is added to sums in memory
 * by atomics; a second kernel rounds the sums to dq. Bound by memory. */
#ifndef TGI_OPS_ATTENTION_BWD_ADD_SM80_CUH
#define TGI_OPS_ATTENTION_BWD_ADD_SM80_CUH

#include "ops/attention/sm80/attention_bwd_queries_sm80.cuh"
#include "ops/attention/sm80/attention_key_place_sm80.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** A configuration of dk and dv with its dtype (f16, bf16 or tf32), and what follows from them. */
template <typename T_, typename Config> struct dkv_tile : Config {
  using T = T_;
  static constexpr int kM = Config::kWarpRows / 16; /* products' 16 rows that a warp has */
  static constexpr int kValueDim = Config::kHeadDim;
  static constexpr int kPart = Config::kQueries / Config::kSharers; /* of a block, in scores */
  static constexpr int kElements = Config::kHeadDim / Config::kSharers;
  static constexpr int kRows = Config::kKeys, kThreads = kWarp * Config::kWarps;
  static_assert(kRows == Config::kWarpRows * Config::kWarps / Config::kSharers,
                "each warp has its keys");
};

/** Layout of the sums of dq that a kernel of tile S makes, for its blocks of queries. They are in
 * the order of its warps' accumulators: register by register, 32 lanes side by side, so that an
 * addition covers whole sectors. A warp has kM times 16 queries and kCols columns. */
template <typename S> struct dq_sums {
  static constexpr int kM = S::kSharers, kGroups = S::kQueries / (16 * kM);
  static constexpr int kCols = S::kHeadDim * kGroups / S::kWarps, kRegisters = kM * kCols / 2;
  static constexpr int kBlock = S::kQueries * S::kHeadDim;

  /** The offset of eight columns of a row of the block: the even ones are adjacent, the odd ones
   * kWarp further on. */
  static __device__ __forceinline__ int at(int row, int column)
  {
    const int warp = column / kCols * kGroups + row / (16 * kM);
    const int i = row / 16 % kM * (kCols / 2) + column % kCols / 8 * 4 + row / 8 % 2 * 2;
    return (warp * kRegisters + i) * kWarp + row % 8 * 4;
  }
};

/** Writes a warp's p or ds, its part of the block's queries, to the block's tile of them; zeros if
 * it has none. */
template <typename S>
__device__ __forceinline__ void put_scores(uint32_t tile, int first, int part, bool some,
                                           const uint32_t (&x)[S::kM][S::kPart / 4])
{
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int m = 0; m < S::kM; m++) {
#pragma unroll
    for (int i = 0; i < S::kPart / 4; i++) {
      const int key = first + 16 * m + lane / 4 + 8 * (i % 2);
      store_shared(tile + row_tile<S::kQueries>::at(key, part * (S::kPart / 8) + i / 2) +
                       lane % 4 * 4,
                   some ? x[m][i] : 0);
    }
  }
}

/** Adds the block's part of dq to its sums. */
template <typename S> __device__ __forceinline__ void add_dq(float *sums, uint32_t ds, uint32_t k)
{
  using T = typename S::T;
  using place = dq_sums<S>;
  constexpr int kM = place::kM, kCols = place::kCols;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int group = warp % place::kGroups, col0 = warp / place::kGroups * kCols;
  /* Rows are keys: A's columns. */
  auto from = [&](int m) {
    const int chunk = 2 * (kM * group + m) + lane / 8 % 2;
    return ds + row_tile<S::kQueries>::at(lane % 8 + lane / 16 * 8, chunk);
  };
  float d[kM][kCols / 2];
  asm volatile("" : "+r"(ds), "+r"(k)); /* derived addresses are computed where needed */
#pragma unroll
  for (int i = 0; i < S::kRows / 16; i++) {
    uint32_t a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; m++) {
      load_matrices_turned(a[m], from(m) + (uint32_t)(i * 16 * row_tile<S::kQueries>::kPitch));
    }
#pragma unroll
    for (int n = 0; n < kCols / 16; n++) {
      uint32_t b[4];
      load_matrices_turned(
          b, k + row_tile<S::kHeadDim>::at(16 * i + lane % 16, col0 / 8 + 2 * n + lane / 16));
#pragma unroll
      for (int m = 0; m < kM; m++) {
        multiply_small<T>(d[m] + 8 * n, a[m], b[0], b[1], i > 0);
        multiply_small<T>(d[m] + 8 * n + 4, a[m], b[2], b[3], i > 0);
      }
    }
  }
  sums += warp * place::kRegisters * kWarp + lane;
#pragma unroll
  for (int i = 0; i < place::kRegisters; i++) {
    atomicAdd(sums + i * kWarp, d[i / (kCols / 2)][i % (kCols / 2)]);
  }
}

/** Rounds the sums of dq. A thread block for a block of queries of a head, a warp for a row of it.
 */
template <typename T, typename Config>
__global__ void __launch_bounds__(kDeltaThreads)
    attention_bwd_dq_sums_kernel(const __grid_constant__ bwd_tiles_job job)
{
  using S = dkv_tile<T, Config>;
  __shared__ query_place x;
  if (threadIdx.x == 0) {
    query_work w = job.work;
    w.size = S::kQueries;
    if (!listed_place(job.c, w, blockIdx.x / w.q_heads, x)) {
      x.state = kNoMore;
    }
    x.head = (int)(blockIdx.x % w.q_heads);
  }
  __syncthreads();
  if (x.state == kNoMore) {
    return;
  }
  const int lane = threadIdx.x % kWarp, kv_head = x.head / job.work.group;
  const int column = lane * kChunk, rows = min(x.rows, S::kQueries);
#pragma unroll 1
  for (int i = threadIdx.x / kWarp; i < rows; i += kDeltaThreads / kWarp) {
    float dq[kChunk] = {}, zero = 0;
    if (column < job.head_dim) {
      const float *const from = job.sums + (int64_t)blockIdx.x * dq_sums<S>::kBlock;
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const float4 sum =
            *reinterpret_cast<const float4 *>(from + dq_sums<S>::at(i, column) + e * kWarp);
        dq[e] = sum.x * job.scale;
        dq[2 + e] = sum.y * job.scale;
        dq[4 + e] = sum.z * job.scale;
        dq[6 + e] = sum.w * job.scale;
      }
#pragma unroll
      for (int c = 0; c < kChunk; c++) {
        zero = fmaf(dq[c], 0.0f, zero);
      }
    }
    if (x.state == kOutOfRange) {
#pragma unroll
      for (int c = 0; c < kChunk; c++) {
        dq[c] = CUDART_NAN_F;
      }
    } else if (__any_sync(kAllLanes, zero != 0)) {
      const key_span seen = span_of(job.work.rule, x, i);
      const int until = max(min(seen.low, x.end), x.first);
      const int behind = max(min(seen.high, x.end), until);
      if (rows_not_finite<T>(job.k, job.head_dim, x.k_index, x.k_row, kv_head, x.first, until) ||
          rows_not_finite<T>(job.k, job.head_dim, x.k_index, x.k_row, kv_head, behind, x.end)) {
        query_again<T>(dq, job, x, i, seen);
#pragma unroll
        for (int c = 0; c < kChunk; c++) {
          dq[c] *= job.scale;
        }
      }
    }
    if (column < job.head_dim) {
      const uint32_t w[4] = {round_pair<T>(dq[0], dq[1]), round_pair<T>(dq[2], dq[3]),
                             round_pair<T>(dq[4], dq[5]), round_pair<T>(dq[6], dq[7])};
      store_words(job.dq.data + job.dq.at(x.q_index, x.q_row + i, x.head) + column, w);
    }
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
