/** Attention backward by mma.sync: dk and dv (arXiv:2307.08691). A thread block has a tile of keys
 * of a kv head, and loops over double-buffered blocks of queries of all heads of its group. Scores
 * and dp are transposed, so that p and ds are register operands of the products that accumulate dv
 * and dk. Bound by tensor cores and shared memory. */
#ifndef TGI_OPS_ATTENTION_BWD_KEYS_SM80_CUH
#define TGI_OPS_ATTENTION_BWD_KEYS_SM80_CUH

#include "ops/attention/sm80/attention_bwd_add_sm80.cuh"
#include "ops/attention/sm80/attention_bwd_key_tiles_sm80.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

template <typename S> struct alignas(128) keys_shared {
  static constexpr int kRow = kHalves<typename S::T> * S::kHeadDim;
  uint16_t k[S::kRows * kRow], v[S::kRows * kRow];
  uint16_t q[2][S::kQueries * kRow], dout[2][S::kQueries * kRow];
  float lse[2][S::kQueries], delta[2][S::kQueries];
  /* rows are keys */
  alignas(128) uint16_t p[S::kSharers > 1 ? S::kRows *S::kQueries : 64];
  alignas(128) uint16_t ds[S::kSharers > 1 || S::kAddsDq ? S::kRows *S::kQueries : 64];
};

/** Scores and dp, transposed, to p and the gradients of the scores. lse, delta: of the thread's
 * first column. */
template <typename S, bool kCaps>
__device__ __forceinline__ void
transposed_of(float (&s)[S::kM][S::kPart / 2], float (&dp)[S::kM][S::kPart / 2],
              const bwd_tiles_job &job, const float *lse, const float *delta)
{
#pragma unroll
  for (int n = 0; n < S::kPart / 8; n++) {
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const float minus = minus_lse(lse[8 * n + e]), term = delta[8 * n + e];
#pragma unroll
      for (int m = 0; m < S::kM; m++) {
        gradient_of<kCaps>(job, minus, term, s[m][4 * n + e], dp[m][4 * n + e]);
        gradient_of<kCaps>(job, minus, term, s[m][4 * n + 2 + e], dp[m][4 * n + 2 + e]);
      }
    }
  }
}

/** The same, masked: of key row0 of the tile and query `query` of the sequence on. */
template <typename S>
__device__ __forceinline__ void
make_transposed(float (&s)[S::kM][S::kPart / 2], float (&dp)[S::kM][S::kPart / 2],
                const bwd_tiles_job &job, const key_place &x, int row0, int query, bool hides,
                const float *lse, const float *delta)
{
  if (job.cap_by > 0) {
    transposed_of<S, true>(s, dp, job, lse, delta);
  } else {
    transposed_of<S, false>(s, dp, job, lse, delta);
  }
  if (hides) {
    const int from = query + threadIdx.x % 4 * 2;
#pragma unroll
    for (int m = 0; m < S::kM; m++) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const key_span seen = queries_of(job.work.rule, x, x.key0 + row0 + 16 * m + 8 * r);
#pragma unroll
        for (int i = 0; i < S::kPart / 4; i++) {
          const int column = from + 8 * (i / 2) + i % 2, at = 4 * (i / 2) + 2 * r + i % 2;
          const bool visible = column >= seen.low && column < seen.high;
          s[m][at] = visible ? s[m][at] : 0.0f;
          dp[m][at] = visible ? dp[m][at] : 0.0f;
        }
      }
    }
  }
}

/** Copies the tile's keys and values, and its first block of queries. */
template <typename S>
__device__ __forceinline__ void begin_loads(keys_shared<S> &sh, const bwd_tiles_job &job,
                                            const key_place &x, const query_rows &queries, int head,
                                            int block)
{
  copy_tile<S>(sh, job, x);
  copy_queries<S>(sh, 0, job, x, queries, head, block);
  commit_copies();
  if (kIsTf32<typename S::T>) {
    wait_for_copies<0>();
    __syncthreads();
    round_tile<typename S::T, (sizeof sh.k + sizeof sh.v) / 2, S::kThreads>(shared_address(sh.k));
  }
}

/** Where warps share keys: the products of p and ds, out of shared memory, with a part of the
 * elements. */
template <typename S>
__device__ __forceinline__ void add_shared_block(keys_shared<S> &sh, int stage, int first, int part,
                                                 float (&dk)[S::kM][S::kElements / 2],
                                                 float (&dv)[S::kM][S::kElements / 2])
{
  using T = typename S::T;
  using tile = tile_of<T, S::kHeadDim>;
  constexpr int kQueries = S::kQueries, kM = S::kM;
  const uint32_t elements = (uint32_t)(part * S::kElements * sizeof(uint16_t));
  const uint32_t keys = row_tile<kQueries>::square((uint32_t)(first * kQueries * 2));
  add_products_small<T, kM, S::kElements, kQueries, S::kHeadDim>(
      dv, shared_address(sh.p) + keys, tile::square(shared_address(sh.dout[stage])) + elements);
  __syncwarp();
  add_products_small<T, kM, S::kElements, kQueries, S::kHeadDim>(
      dk, shared_address(sh.ds) + keys, tile::square(shared_address(sh.q[stage])) + elements);
}

template <typename T, typename Config>
__global__ void __launch_bounds__(dkv_tile<T, Config>::kThreads, Config::kOccupancy)
    attention_bwd_dkv_tiles_kernel(const __grid_constant__ bwd_tiles_job job)
{
  using S = dkv_tile<T, Config>;
  using tile = tile_of<T, S::kHeadDim>;
  constexpr int kQueries = S::kQueries, kM = S::kM;
  extern __shared__ __align__(128) uint8_t memory[];
  keys_shared<S> &sh = *reinterpret_cast<keys_shared<S> *>(memory);
  __shared__ key_place x;
  __shared__ warp_range ranges[S::kWarps];
  __shared__ query_rows queries;
  if (threadIdx.x == 0 && put_key_place(job, S::kRows, kQueries, blockIdx.x, x)) {
    queries = query_rows_of(job, x);
  }
  __syncthreads();
  if (x.state == kNoMore) {
    return;
  }
  const int lane = threadIdx.x % kWarp, part = threadIdx.x / kWarp % S::kSharers;
  const int first = threadIdx.x / kWarp / S::kSharers * 16 * kM;
  warp_range &range = ranges[threadIdx.x / kWarp];
  if (lane == 0) {
    range = queries_range(job.work.rule, x, first, 16 * kM, kQueries);
  }
  const uint32_t k_page = shared_address(sh.k) + (uint32_t)(first * tile::kPitch);
  const uint32_t v_page = shared_address(sh.v) + (uint32_t)(first * tile::kPitch);
  float dk[kM][S::kElements / 2], dv[kM][S::kElements / 2];
#pragma unroll
  for (int m = 0; m < kM; m++) {
#pragma unroll
    for (int i = 0; i < S::kElements / 2; i++) {
      dk[m][i] = dv[m][i] = 0;
    }
  }
  int head = x.kv_head * job.work.group, block = x.low_block, stage = 0;
  int left = (x.high_block - x.low_block) * job.work.group;
  if (left > 0) {
    begin_loads<S>(sh, job, x, queries, head, block);
  }
#pragma unroll 1
  for (; left > 0; left--, stage ^= 1) {
    wait_for_copies<0>();
    __syncthreads(); /* all threads' copies have arrived, and the block before is no longer read */
    if (left > 1) {
      const bool last = block + 1 == x.high_block;
      copy_queries<S>(sh, stage ^ 1, job, x, queries, head + last, last ? x.low_block : block + 1);
    }
    commit_copies();
    const bool mine = block >= range.below && block < range.above;
    uint32_t p[kM][kHalves<T> * S::kPart / 4], ds[kM][kHalves<T> * S::kPart / 4];
    if (mine) {
      const bool hides = range.hides(block * kQueries, (block + 1) * kQueries);
      const uint32_t rows = (uint32_t)(part * S::kPart * tile::kPitch);
      float s[kM][S::kPart / 2], dp[kM][S::kPart / 2];
      multiply_rows_small<T, kM, S::kPart, S::kHeadDim>(
          s, tile::square(k_page), tile::columns(shared_address(sh.q[stage]) + rows));
      __syncwarp(); /* keeps the assembler from loading more before it is needed: spills */
      multiply_rows_small<T, kM, S::kPart, S::kHeadDim>(
          dp, tile::square(v_page), tile::columns(shared_address(sh.dout[stage]) + rows));
      const int column = part * S::kPart + lane % 4 * 2;
      make_transposed<S>(s, dp, job, x, first + lane / 4, block * kQueries + part * S::kPart, hides,
                         sh.lse[stage] + column, sh.delta[stage] + column);
#pragma unroll
      for (int m = 0; m < kM; m++) {
        round_sums<T>(p[m], s[m]);
        round_sums<T>(ds[m], dp[m]);
      }
    }
    if constexpr (S::kSharers > 1) {
      put_scores<S>(shared_address(sh.p), first, part, mine, p);
    }
    if constexpr (S::kSharers > 1 || S::kAddsDq) {
      put_scores<S>(shared_address(sh.ds), first, part, mine, ds);
    }
    if constexpr (S::kSharers == 1) {
      if (mine) {
        __syncwarp();
        add_rows_small<T, kM, S::kHeadDim, kQueries>(
            dv, p, tile::template depth<T>(shared_address(sh.dout[stage])));
        add_rows_small<T, kM, S::kHeadDim, kQueries>(
            dk, ds, tile::template depth<T>(shared_address(sh.q[stage])));
      }
    }
    if constexpr (S::kSharers > 1 || S::kAddsDq) {
      __syncthreads();
    }
    if constexpr (S::kSharers > 1) {
      if (mine) {
        add_shared_block<S>(sh, stage, first, part, dk, dv);
      }
    }
    if constexpr (S::kAddsDq) {
      __syncwarp();
      add_dq<S>(job.sums +
                    ((int64_t)(x.q_place + block) * job.work.q_heads + head) * dq_sums<S>::kBlock,
                shared_address(sh.ds), shared_address(sh.k));
    }
    block++;
    if (block == x.high_block) {
      block = x.low_block;
      head++;
    }
  }
  if (S::kAddsDq || S::kSharers > 1) {
    __syncthreads(); /* all warps have read all keys, whose buffers results reuse */
  }
  __syncwarp();
  const float by = x.state == kOutOfRange ? CUDART_NAN_F : 1.0f;
  const int low = range.below * kQueries, high = range.above * kQueries;
  bool bad[kM][2], bad_dv[kM][2], some = false;
  put_sums<T, kM, S::kHeadDim, S::kSharers>(k_page, part, dk, job.scale * by, bad);
  put_sums<T, kM, S::kHeadDim, S::kSharers>(v_page, part, dv, by, bad_dv);
#pragma unroll
  for (int m = 0; m < kM; m++) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      bad[m][r] = bad[m][r] || bad_dv[m][r];
      some = some || bad[m][r];
    }
  }
  if (high > low && range.hides(low, high) && __any_sync(kAllLanes, some)) {
    keys_again<S, true, true>(job, x, first, part, k_page, v_page, low, high, bad);
  }
  const int rows = min(x.rows - first, 16 * kM);
  if (job.dk.data) {
    store_rows<T, S::kHeadDim, S::kSharers>(job.dk, x.k_index, x.k_row + first, x.kv_head, rows,
                                            job.head_dim, k_page, part);
  }
  if (job.dv.data) {
    store_rows<T, S::kHeadDim, S::kSharers>(job.dv, x.k_index, x.k_row + first, x.kv_head, rows,
                                            job.v_dim, v_page, part);
  }
}

/* ---- host ---- */

template <typename T, typename Config>
tg_status run_keys(const tg_context *ctx, const bwd_tiles_job &job)
{
  using S = dkv_tile<T, Config>;
  return launch(ctx, attention_bwd_dkv_tiles_kernel<T, Config>, grid_of(job.key_items), S::kThreads,
                sizeof(keys_shared<S>), job);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
