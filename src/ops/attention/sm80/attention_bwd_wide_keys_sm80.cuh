/**
 * Attention backward by mma.sync: dk and dv of heads of more than 128 elements.
 *
 * A thread block has a tile of keys of a kv head, and loops over double-buffered blocks of queries
 * of all heads of its group. Accumulators of dk and of dv, 16 keys each, fill a warp's registers,
 * so warps work in pairs with the same keys: one makes scores, p and dv, the other one dp, ds and
 * dk. What ds needs of p goes from thread to thread of a pair through shared memory, in f32; p and
 * ds, rounded, stay in registers. Bound by tensor cores and shared memory.
 */
#ifndef TGI_OPS_ATTENTION_BWD_WIDE_KEYS_SM80_CUH
#define TGI_OPS_ATTENTION_BWD_WIDE_KEYS_SM80_CUH

#include "ops/attention/sm80/attention_bwd_key_tiles_sm80.cuh"
#include "ops/attention/sm80/attention_configs_sm80.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** A configuration of dk and dv of wide heads with its dtype, and what follows from them. */
template <typename T_, typename Config> struct dkv_wide_tile : Config {
  using T = T_;
  static constexpr int kM = 1, kSharers = 1;
  static constexpr int kRows = Config::kKeys, kThreads = 2 * kWarp * Config::kWarpPairs;
  static_assert(kRows == 16 * Config::kWarpPairs, "a pair has 16 keys");
};

template <typename S> struct alignas(128) wide_keys_shared {
  uint16_t k[S::kRows * S::kHeadDim], v[S::kRows * S::kValueDim];
  uint16_t q[2][S::kQueries * S::kHeadDim], dout[2][S::kQueries * S::kValueDim];
  float lse[2][S::kQueries], delta[2][S::kQueries];
  float4 slope[S::kWarpPairs][S::kQueries / 8][kWarp]; /* factor of dp - delta */
};

/** Score to p; returns p times the cap's slope. */
template <bool kCaps>
__device__ __forceinline__ float slope_of(const bwd_tiles_job &job, float minus, float &s)
{
  if constexpr (kCaps) {
    const float t = tanh_close(s * job.cap_by);
    s = exp2_flushed(fmaf(job.softcap * t, job.exponent, minus));
    return s * fmaf(-t, t, 1.0f);
  }
  s = exp2_flushed(fmaf(s, job.exponent, minus));
  return s;
}

/** Scores to p; their slopes go to the other warp of the pair. lse: from the thread's first column
 * on. */
template <int kN, bool kCaps>
__device__ __forceinline__ void make_p(float (&s)[kN / 2], const bwd_tiles_job &job,
                                       const float *lse, float4 (*to)[kWarp])
{
#pragma unroll
  for (int n = 0; n < kN / 8; n++) {
    const float m0 = minus_lse(lse[8 * n]), m1 = minus_lse(lse[8 * n + 1]);
    float4 slope;
    slope.x = slope_of<kCaps>(job, m0, s[4 * n]);
    slope.y = slope_of<kCaps>(job, m1, s[4 * n + 1]);
    slope.z = slope_of<kCaps>(job, m0, s[4 * n + 2]);
    slope.w = slope_of<kCaps>(job, m1, s[4 * n + 3]);
    to[n][threadIdx.x % kWarp] = slope;
  }
}

/** dp to the gradients of scores. delta: from the thread's first column on. */
template <int kN>
__device__ __forceinline__ void make_ds(float (&dp)[kN / 2], const float *delta,
                                        const float4 (*slopes)[kWarp])
{
#pragma unroll
  for (int n = 0; n < kN / 8; n++) {
    const float d0 = delta[8 * n], d1 = delta[8 * n + 1];
    const float4 slope = slopes[n][threadIdx.x % kWarp];
    dp[4 * n] = slope.x * (dp[4 * n] - d0);
    dp[4 * n + 1] = slope.y * (dp[4 * n + 1] - d1);
    dp[4 * n + 2] = slope.z * (dp[4 * n + 2] - d0);
    dp[4 * n + 3] = slope.w * (dp[4 * n + 3] - d1);
  }
}

/** Zeros where a query of the block does not see a key. row0: of the thread's first key. */
template <typename S>
__device__ __forceinline__ void hide_queries(float (&s)[S::kQueries / 2], key_rule rule,
                                             const key_place &x, int row0, int block)
{
  const int from = block * S::kQueries + threadIdx.x % 4 * 2;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const key_span seen = queries_of(rule, x, x.key0 + row0 + 8 * r);
#pragma unroll
    for (int i = 0; i < S::kQueries / 4; i++) {
      const int query = from + 8 * (i / 2) + i % 2;
      float &e = s[4 * (i / 2) + 2 * r + i % 2];
      e = query >= seen.low && query < seen.high ? e : 0.0f;
    }
  }
}

/** A block's products of a warp of the pair: of p and dv, or of ds and dk. `first`: of the pair's
 * keys. */
template <typename S, bool kOfValues>
__device__ __forceinline__ void
add_block(float (&sum)[1][(kOfValues ? S::kValueDim : S::kHeadDim) / 2], const bwd_tiles_job &job,
          const key_place &x, wide_keys_shared<S> &sh, int stage, int first, int block, bool hides)
{
  using T = typename S::T;
  constexpr int kN = S::kQueries, kDepth = kOfValues ? S::kHeadDim : S::kValueDim;
  constexpr int kCols = kOfValues ? S::kValueDim : S::kHeadDim;
  using tile = row_tile<kDepth>;
  const int lane = threadIdx.x % kWarp, pair = first / 16, column = lane % 4 * 2;
  float s[1][kN / 2];
  uint32_t a[1][kN / 4]; /* s, rounded */
  multiply_rows_small<T, 1, kN, kDepth>(
      s, tile::square(shared_address(kOfValues ? sh.k : sh.v) + (uint32_t)(first * tile::kPitch)),
      tile::columns(shared_address(kOfValues ? sh.q[stage] : sh.dout[stage])));
  __syncwarp(); /* keeps the assembler from loading more before it is needed: spills */
  if (kOfValues) {
    if (job.cap_by > 0) {
      make_p<kN, true>(s[0], job, sh.lse[stage] + column, sh.slope[pair]);
    } else {
      make_p<kN, false>(s[0], job, sh.lse[stage] + column, sh.slope[pair]);
    }
    arrive_some(1 + pair, 2 * kWarp);
  } else {
    sync_some(1 + pair, 2 * kWarp);
    make_ds<kN>(s[0], sh.delta[stage] + column, sh.slope[pair]);
  }
  if (hides) {
    hide_queries<S>(s[0], job.work.rule, x, first + lane / 4, block);
  }
  round_pairs<T>(a[0], s[0]);
  __syncwarp();
  add_rows_small<T, 1, kCols, kN>(
      sum, a, row_tile<kCols>::square(shared_address(kOfValues ? sh.dout[stage] : sh.q[stage])));
}

/** Stores a warp's rows. All warps have read the tile's keys and values, whose buffers the rows
 * reuse. */
template <typename S, bool kOfValues>
__device__ __forceinline__ void
finish_side(float (&sum)[1][(kOfValues ? S::kValueDim : S::kHeadDim) / 2], const bwd_tiles_job &job,
            const key_place &x, wide_keys_shared<S> &sh, int first, const warp_range &range)
{
  using T = typename S::T;
  constexpr int kCols = kOfValues ? S::kValueDim : S::kHeadDim;
  const heads_view<uint16_t> &to = kOfValues ? job.dv : job.dk;
  if (!to.data) {
    return;
  }
  const uint32_t page =
      shared_address(kOfValues ? sh.v : sh.k) + (uint32_t)(first * row_tile<kCols>::kPitch);
  const int low = range.below * S::kQueries, high = range.above * S::kQueries;
  const float by = x.state == kOutOfRange ? CUDART_NAN_F : kOfValues ? 1.0f : job.scale;
  bool bad[1][2];
  put_sums<T, 1, kCols>(page, 0, sum, by, bad);
  if (high > low && range.hides(low, high) && __any_sync(kAllLanes, bad[0][0] || bad[0][1])) {
    keys_again<S, !kOfValues, kOfValues>(job, x, first, 0, page, page, low, high, bad);
  }
  store_rows<T, kCols>(to, x.k_index, x.k_row + first, x.kv_head, min(x.rows - first, 16),
                       kOfValues ? job.v_dim : job.head_dim, page);
}

template <typename T, typename Config>
__global__ void __launch_bounds__(dkv_wide_tile<T, Config>::kThreads, 1)
    attention_bwd_wide_dkv_tiles_kernel(const __grid_constant__ bwd_tiles_job job)
{
  using S = dkv_wide_tile<T, Config>;
  constexpr int kMost = S::kHeadDim > S::kValueDim ? S::kHeadDim : S::kValueDim;
  extern __shared__ __align__(128) uint8_t memory[];
  wide_keys_shared<S> &sh = *reinterpret_cast<wide_keys_shared<S> *>(memory);
  __shared__ key_place x;
  __shared__ warp_range ranges[S::kWarpPairs];
  __shared__ query_rows queries;
  if (threadIdx.x == 0 && put_key_place(job, S::kRows, S::kQueries, blockIdx.x, x)) {
    queries = query_rows_of(job, x);
  }
  __syncthreads();
  if (x.state == kNoMore) {
    return;
  }
  const int pair = threadIdx.x / kWarp % S::kWarpPairs, first = 16 * pair;
  const bool of_values = threadIdx.x < kWarp * S::kWarpPairs;
  warp_range &range = ranges[pair];
  if (threadIdx.x % kWarp == 0 && of_values) {
    range = queries_range(job.work.rule, x, first, 16, S::kQueries);
  }
  float sum[kMost / 2];
  auto &dv = reinterpret_cast<float(&)[1][S::kValueDim / 2]>(sum);
  auto &dk = reinterpret_cast<float(&)[1][S::kHeadDim / 2]>(sum);
#pragma unroll
  for (int i = 0; i < kMost / 2; i++) {
    sum[i] = 0;
  }
  int head = x.kv_head * job.work.group, block = x.low_block, stage = 0;
  int left = (x.high_block - x.low_block) * job.work.group;
  if (left > 0) {
    copy_tile<S>(sh, job, x);
    copy_queries<S>(sh, 0, job, x, queries, head, block);
    commit_copies();
  }
#pragma unroll 1
  for (; left > 0; left--, stage ^= 1) {
    const int at = block;
    block++;
    if (block == x.high_block) {
      block = x.low_block;
      head++;
    }
    wait_for_copies<0>();
    __syncthreads(); /* all threads' copies have arrived, and the block before is no longer read */
    if (left > 1) {
      copy_queries<S>(sh, stage ^ 1, job, x, queries, head, block);
    }
    commit_copies();
    if (at >= range.below && at < range.above) {
      const bool hides = range.hides(at * S::kQueries, (at + 1) * S::kQueries);
      if (of_values) {
        add_block<S, true>(dv, job, x, sh, stage, first, at, hides);
      } else {
        add_block<S, false>(dk, job, x, sh, stage, first, at, hides);
      }
    }
  }
  __syncthreads();
  if (of_values) {
    finish_side<S, true>(dv, job, x, sh, first, range);
  } else {
    finish_side<S, false>(dk, job, x, sh, first, range);
  }
}

/* ---- host ---- */

template <typename T, typename Config>
tg_status run_wide_keys(const tg_context *ctx, const bwd_tiles_job &job)
{
  using S = dkv_wide_tile<T, Config>;
  return launch(ctx, attention_bwd_wide_dkv_tiles_kernel<T, Config>, grid_of(job.key_items),
                S::kThreads, sizeof(wide_keys_shared<S>), job);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
