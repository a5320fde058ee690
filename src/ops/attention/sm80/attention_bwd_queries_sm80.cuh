/** Attention backward by mma.sync: dq (arXiv:2307.08691). A thread block has a tile of queries of
 * one head, and loops over blocks of keys as the forward does, double-buffered where shared memory
 * allows. Bound by tensor cores and shared memory. */
#ifndef TGI_OPS_ATTENTION_BWD_QUERIES_SM80_CUH
#define TGI_OPS_ATTENTION_BWD_QUERIES_SM80_CUH

#include "ops/attention/sm80/attention_bwd_job_sm80.cuh"
#include "ops/attention/sm80/attention_configs_sm80.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** A configuration of dq with its dtype (f16, bf16 or tf32), and what follows from them. */
template <typename T_, typename Config> struct dq_tile : Config {
  using T = T_;
  static constexpr int kM = Config::kWarpRows / 16; /* products' 16 rows that a warp has */
  static constexpr int kRows = Config::kQueries, kThreads = kWarp * Config::kWarps;
  static_assert(kRows == Config::kWarpRows * Config::kWarps, "each warp has its queries");
};

template <typename S> struct alignas(128) queries_shared {
  static constexpr int kRow = kHalves<typename S::T> * S::kHeadDim,
                       kVRow = kHalves<typename S::T> * S::kValueDim;
  uint16_t q[S::kRows * kRow], dout[S::kRows * kVRow];
  uint16_t k[S::kStages][S::kKeys * kRow], v[S::kStages][S::kKeys * kVRow];
};

/** dq of query i of the place, without the scale; each lane has a chunk of it. By a warp. */
template <typename T>
__device__ __forceinline__ void query_again(float (&dq)[kChunk], const bwd_tiles_job &job,
                                            const query_place &x, int i, key_span seen)
{
  const int kv_head = x.head / job.work.group, row = x.q_row + i;
  const int64_t at = term_at(job.work, x.q_index, row, x.head);
  const float minus = minus_lse(job.lse[at]), delta = job.delta[at];
  float q[kChunk], dout[kChunk];
  load_chunk<T>(q, job.q.data + job.q.at(x.q_index, row, x.head), job.head_dim);
  load_chunk<T>(dout, job.dout.data + job.dout.at(x.q_index, row, x.head), job.v_dim);
#pragma unroll
  for (int c = 0; c < kChunk; c++) {
    dq[c] = 0;
  }
#pragma unroll 1
  for (int key = seen.low; key < seen.high; key++) {
    float k[kChunk], v[kChunk], p, g;
    load_chunk<T>(k, job.k.data + job.k.at(x.k_index, x.k_row + key, kv_head), job.head_dim);
    load_chunk<T>(v, job.v.data + job.v.at(x.k_index, x.k_row + key, kv_head), job.v_dim);
    pair_gradient(job, q, k, dout, v, minus, delta, &p, &g);
#pragma unroll
    for (int c = 0; c < kChunk; c++) {
      dq[c] = fmaf(g, k[c], dq[c]);
    }
  }
}

/** Recomputes rows that a masked key made NaN; keys low .. high - 1 went into them. */
template <typename S>
__device__ __forceinline__ void queries_again(const bwd_tiles_job &job, const query_place &x,
                                              int first, uint32_t page, int low, int high,
                                              const bool (&bad)[S::kM][2])
{
  using T = typename S::T;
  const int kv_head = x.head / job.work.group;
#pragma unroll 1
  for (int r = 0; r < 16 * S::kM; r++) {
    if (!is_bad_row(bad, r) || first + r >= x.rows) {
      continue;
    }
    const key_span seen = span_of(job.work.rule, x, first + r);
    const int from = max(low, x.first), to = min(high, x.end);
    const int until = max(min(seen.low, to), from), behind = max(min(seen.high, to), until);
    if (rows_not_finite<T>(job.k, job.head_dim, x.k_index, x.k_row, kv_head, from, until) ||
        rows_not_finite<T>(job.k, job.head_dim, x.k_index, x.k_row, kv_head, behind, to)) {
      float dq[kChunk];
      query_again<T>(dq, job, x, first + r, seen);
      put_row<T, S::kHeadDim>(page, r, 0, dq, job.scale);
    }
  }
  __syncwarp();
}

/** Scores and dp of a block to p and the gradients of the scores. */
template <typename S, bool kCaps>
__device__ __forceinline__ void
gradients_of(float (&s)[S::kM][S::kKeys / 2], float (&dp)[S::kM][S::kKeys / 2],
             const bwd_tiles_job &job, const float (&minus)[S::kM][2],
             const float (&delta)[S::kM][2])
{
#pragma unroll
  for (int m = 0; m < S::kM; m++) {
#pragma unroll
    for (int i = 0; i < S::kKeys / 2; i++) {
      gradient_of<kCaps>(job, minus[m][i / 2 % 2], delta[m][i / 2 % 2], s[m][i], dp[m][i]);
    }
  }
}

/** The same, masked, and rounded as operand. */
template <typename S>
__device__ __forceinline__ void
make_gradients(uint32_t (&ds)[S::kM][kHalves<typename S::T> * S::kKeys / 4],
               float (&s)[S::kM][S::kKeys / 2], float (&dp)[S::kM][S::kKeys / 2],
               const bwd_tiles_job &job, const query_place &x, int row0, int block, bool hides,
               const float (&minus)[S::kM][2], const float (&delta)[S::kM][2])
{
  if (job.cap_by > 0) {
    gradients_of<S, true>(s, dp, job, minus, delta);
  } else {
    gradients_of<S, false>(s, dp, job, minus, delta);
  }
#pragma unroll
  for (int m = 0; m < S::kM; m++) {
    if (hides) {
      const int from = block * S::kKeys + threadIdx.x % 4 * 2;
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const key_span seen = span_of(job.work.rule, x, row0 + 16 * m + 8 * r);
#pragma unroll
        for (int i = 0; i < S::kKeys / 4; i++) {
          const int key = from + 8 * (i / 2) + i % 2;
          float &d = dp[m][4 * (i / 2) + 2 * r + i % 2];
          d = key >= seen.low && key < seen.high ? d : 0.0f;
        }
      }
    }
    round_sums<typename S::T>(ds[m], dp[m]);
  }
}

/** What copies of a tile's blocks need: the tile, its keys and values, and shared memory. */
template <typename S> struct dq_loader {
  const bwd_tiles_job &job;
  const query_place &x;
  const key_rows &keys;
  queries_shared<S> &sh;
};

template <typename S>
__device__ __forceinline__ void load_keys(const dq_loader<S> &l, int to, int block)
{
  copy_keys<typename S::T, S::kHeadDim, S::kKeys, S::kThreads>(shared_address(l.sh.k[to]), l.keys.k,
                                                               l.job.k.step[1], l.job.head_dim, l.x,
                                                               block, l.keys.whole(block));
}

template <typename S>
__device__ __forceinline__ void load_values(const dq_loader<S> &l, int to, int block)
{
  copy_keys<typename S::T, S::kValueDim, S::kKeys, S::kThreads>(
      shared_address(l.sh.v[to]), l.keys.v, l.job.v.step[1], l.job.v_dim, l.x, block,
      l.keys.whole(block));
}

/** Copies the tile's queries and their dout, and its first block of keys. */
template <typename S> __device__ __forceinline__ void begin_loads(const dq_loader<S> &l)
{
  using T = typename S::T;
  const bwd_tiles_job &job = l.job;
  const query_place &x = l.x;
  copy_rows<kHalves<T> * S::kHeadDim, S::kRows, S::kThreads>(
      shared_address(l.sh.q), job.q.data + job.q.at(x.q_index, x.q_row, x.head), job.q.step[1], 0,
      x.rows, kHalves<T> * job.head_dim, job.q.data);
  copy_rows<kHalves<T> * S::kValueDim, S::kRows, S::kThreads>(
      shared_address(l.sh.dout), job.dout.data + job.dout.at(x.q_index, x.q_row, x.head),
      job.dout.step[1], 0, x.rows, kHalves<T> * job.v_dim, job.dout.data);
  if (S::kStages == 2) {
    load_keys(l, 0, x.high_block - 1);
  }
  load_values(l, 0, x.high_block - 1);
  commit_copies();
  if (kIsTf32<T>) {
    wait_for_copies<0>();
    __syncthreads();
    round_tile<T, (sizeof l.sh.q + sizeof l.sh.dout) / 2, S::kThreads>(shared_address(l.sh.q));
  }
}

/** The terms of the thread's rows, and zeros in their sums. row0: of the thread's first row. */
template <typename S>
__device__ __forceinline__ void begin_rows(const bwd_tiles_job &job, const query_place &x, int row0,
                                           float (&dq)[S::kM][S::kHeadDim / 2],
                                           float (&minus)[S::kM][2], float (&delta)[S::kM][2])
{
#pragma unroll
  for (int m = 0; m < S::kM; m++) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int row = min(row0 + 16 * m + 8 * r, x.rows - 1);
      const int64_t at = term_at(job.work, x.q_index, x.q_row + row, x.head);
      minus[m][r] = minus_lse(job.lse[at]);
      delta[m][r] = job.delta[at];
    }
#pragma unroll
    for (int i = 0; i < S::kHeadDim / 2; i++) {
      dq[m][i] = 0;
    }
  }
}

/** Stores a warp's rows. `page`: its own shared memory. */
template <typename S>
__device__ __forceinline__ void finish_warp(const bwd_tiles_job &job, const query_place &x,
                                            int first, uint32_t page, const warp_range &range,
                                            float (&dq)[S::kM][S::kHeadDim / 2])
{
  using T = typename S::T;
  const int low = range.below * S::kKeys, high = range.above * S::kKeys;
  bool bad[S::kM][2];
  put_sums<T, S::kM, S::kHeadDim>(page, 0, dq, x.state == kOutOfRange ? CUDART_NAN_F : job.scale,
                                  bad);
  bool some = false;
#pragma unroll
  for (int m = 0; m < S::kM; m++) {
    some = some || bad[m][0] || bad[m][1];
  }
  if (high > low && range.hides(low, high) && __any_sync(kAllLanes, some)) {
    queries_again<S>(job, x, first, page, low, high, bad);
  }
  store_rows<T, S::kHeadDim>(job.dq, x.q_index, x.q_row + first, x.head,
                             min(x.rows - first, 16 * S::kM), job.head_dim, page);
}

template <typename T, typename Config>
__global__ void __launch_bounds__(dq_tile<T, Config>::kThreads, Config::kOccupancy)
    attention_bwd_dq_tiles_kernel(const __grid_constant__ bwd_tiles_job job)
{
  using S = dq_tile<T, Config>;
  using tile = tile_of<T, S::kHeadDim>;
  using dout_tile = tile_of<T, S::kValueDim>;
  constexpr int kKeys = S::kKeys, kM = S::kM, kStages = S::kStages;
  extern __shared__ __align__(128) uint8_t memory[];
  queries_shared<S> &sh = *reinterpret_cast<queries_shared<S> *>(memory);
  __shared__ query_place x;
  __shared__ warp_range ranges[S::kWarps];
  __shared__ key_rows keys;
  if (threadIdx.x == 0 && put_place(job.work, (int)blockIdx.x, &x)) {
    put_key_rows(job.k, job.v, x.head / job.work.group, x, kKeys,
                 job.head_dim == S::kHeadDim && job.v_dim == S::kValueDim, &keys);
  }
  __syncthreads();
  if (x.state == kNoMore) {
    return;
  }
  const int lane = threadIdx.x % kWarp, first = threadIdx.x / kWarp * 16 * kM;
  const dq_loader<S> loader = {job, x, keys, sh};
  warp_range &range = ranges[threadIdx.x / kWarp];
  if (lane == 0) {
    range = range_of(job.work.rule, x, first, 16 * kM, kKeys);
  }
  const uint32_t page = shared_address(sh.q) + (uint32_t)(first * tile::kPitch);
  const uint32_t dout_page = shared_address(sh.dout) + (uint32_t)(first * dout_tile::kPitch);
  float dq[kM][S::kHeadDim / 2], minus[kM][2], delta[kM][2];
  begin_rows<S>(job, x, first + lane / 4, dq, minus, delta);
  if (x.high_block > x.low_block) {
    begin_loads(loader);
  }
  int stage = 0;
#pragma unroll 1
  for (int block = x.high_block - 1; block >= x.low_block; block--, stage ^= 1) {
    wait_for_copies<0>();
    __syncthreads(); /* all threads' copies have arrived, and the block before is no longer read */
    if (kStages == 1) {
      load_keys(loader, 0, block);
    } else if (block > x.low_block) {
      load_keys(loader, stage ^ 1, block - 1);
      load_values(loader, stage ^ 1, block - 1);
    }
    commit_copies();
    const int at = kStages == 2 ? stage : 0;
    const bool mine = block >= range.below && block < range.above;
    float dp[kM][kKeys / 2];
    if constexpr (kStages ==
                  1) { /* keys load while dp is computed, the next values during all else */
      if (mine) {
        multiply_rows_small<T, kM, kKeys, S::kValueDim>(
            dp, dout_tile::square(dout_page), dout_tile::columns(shared_address(sh.v[0])));
      }
      wait_for_copies<0>();
      __syncthreads();
      if (block > x.low_block) {
        load_values(loader, 0, block - 1);
      }
      commit_copies();
    }
    if (mine) {
      const bool hides = range.hides(block * kKeys, (block + 1) * kKeys);
      float s[kM][kKeys / 2];
      uint32_t ds[kM][kHalves<T> * kKeys / 4];
      multiply_rows_small<T, kM, kKeys, S::kHeadDim>(s, tile::square(page),
                                                     tile::columns(shared_address(sh.k[at])));
      __syncwarp();
      if constexpr (kStages == 2) {
        multiply_rows_small<T, kM, kKeys, S::kValueDim>(
            dp, dout_tile::square(dout_page), dout_tile::columns(shared_address(sh.v[at])));
      }
      make_gradients<S>(ds, s, dp, job, x, first + lane / 4, block, hides, minus, delta);
      __syncwarp(); /* keeps the assembler from loading more before it is needed: spills */
      add_rows_small<T, kM, S::kHeadDim, kKeys>(dq, ds,
                                                tile::template depth<T>(shared_address(sh.k[at])));
    }
  }
  __syncwarp();
  finish_warp<S>(job, x, first, page, range, dq);
}

/* ---- host ---- */

/** `items`: tiles of all heads. */
template <typename T, typename Config>
tg_status run_queries(const tg_context *ctx, int64_t items, const bwd_tiles_job &job)
{
  using S = dq_tile<T, Config>;
  return launch(ctx, attention_bwd_dq_tiles_kernel<T, Config>, grid_of(items), S::kThreads,
                sizeof(queries_shared<S>), job);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
