/** Attention backward on Hopper, heads of more than 128 elements: tiles, the layout of shared
 * memory, and the addition of a tile's part of dq. */
#ifndef TGI_OPS_ATTENTION_BWD_WIDE_TILES_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_WIDE_TILES_SM90_CUH

#include "ops/attention/sm90/attention_bwd_results_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** A configuration of wide heads with its dtype, and what follows from them. */
template <typename T_, typename Config> struct bwd_wide_tile : Config {
  using T = T_;
  using Config::kHeadDim, Config::kKeys, Config::kQueries;
  static constexpr int kThreads = (Config::kWarpGroups + 1) * kWarpgroup;
  static constexpr int kPages = kHeadDim / kPageCols, kValuePages = Config::kValueDim / kPageCols;
  static constexpr int kKeyPage = kKeys * kPageRow, kQueryPage = kQueries * kPageRow;
  /* Pages of dq that the side of values computes; the other side computes the rest. */
  static constexpr int kFirstPages = kPages / 2;
  static constexpr bool kEarly = kHeadDim < 256; /* dq overlaps scores, where registers hold both */
  static constexpr bool kLastRounds = true;
  static constexpr int kLoaderRegisters = 24, kRegisters = 240;
};

/** Tile parameters of a product with kColumns columns. */
template <typename S, int kColumns> struct bwd_wide_part {
  using T = typename S::T;
  static constexpr int kHeadDim = kColumns, kQueries = S::kQueries, kKeyPage = S::kKeyPage;
  static constexpr int kPages = kColumns / kPageCols;
};

template <typename T, typename Config> struct alignas(1024) bwd_shared<bwd_wide_tile<T, Config>> {
  using S = bwd_wide_tile<T, Config>;
  uint8_t k[S::kPages * S::kKeyPage], v[S::kValuePages * S::kKeyPage];
  uint8_t q[S::kStages][S::kPages * S::kQueryPage],
      dout[S::kStages][S::kValuePages * S::kQueryPage];
  uint8_t ds[2][S::kQueryPage]; /* rows are queries */
  float4 p[S::kQueries / 8]
          [kWarpgroup]; /* in accumulator order, for the same thread of the other side */
  float minus[S::kStages][S::kQueries], delta[S::kStages][S::kQueries];
  mbarrier keys_full, keys_empty, keys_read, full[S::kStages], empty[S::kStages], ds_full[2],
      ds_empty[2];
  mbarrier p_full[kGroupWarps], p_empty[kGroupWarps];
  mbarrier turn_come[2], turn_used[2], turn_told[2];
  key_place place[kItemPlaces];
  tile_place tile[kTilePlaces];
  int turn[kTilePlaces]; /* turn_ends */
};

/** Transposes four words of each of four neighbouring lanes. */
__device__ __forceinline__ void turn_words(uint32_t (&w)[4])
{
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    const bool upper = threadIdx.x & step;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (!(i & step)) {
        const uint32_t got = __shfl_xor_sync(kAllLanes, upper ? w[i] : w[i + step], step);
        w[i] = upper ? got : w[i];
        w[i + step] = upper ? w[i + step] : got;
      }
    }
  }
}

/** Rounds and stores a warp group's columns of dq, from `column` on, by its threads: few tiles need
 * it. */
template <typename T, int kN>
__device__ __forceinline__ void store_columns(const float (&dq)[kN], const bwd_job &job,
                                              const key_place &x, const tile_place &t, int queries,
                                              int column)
{
  const int thread = threadIdx.x % kWarpgroup, lane = threadIdx.x % kWarp, warp = thread / kWarp;
  bool lost = false;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = t.tile * queries + 16 * warp + lane / 4 + 8 * r;
    uint16_t *const to = job.dq.data + job.dq.at(x.q_index, x.q_row + row, t.head);
#pragma unroll
    for (int i = 0; i < kN / 16; i++) { /* 32 columns, 8 of them for a lane */
      uint32_t pair[4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float a = dq[16 * i + 4 * j + 2 * r] * job.scale;
        const float b = dq[16 * i + 4 * j + 2 * r + 1] * job.scale;
        lost = lost || a != a || b != b;
        pair[j] = round_pair<T>(a, b);
      }
      turn_words(pair);
      const int at = column + 32 * i + 8 * (lane % 4);
      if (row < x.nq && at < (int)job.c.l.head_dim) {
        store_words(to + at, pair);
      }
    }
  }
  if (lost) {
    job.lost_tile[t.place] = 1;
  }
}

/** Adds a warp group's pages of dq of the n-th tile, from `page` on, to the sums in memory once it
 * is this block's turn; the last block stores dq. */
template <typename S, int kN>
__device__ __forceinline__ void add_columns(float (&dq)[kN], const bwd_job &job, const key_place &x,
                                            unsigned n, int page, bwd_shared<S> &sh)
{
  if (!job.dq.data) {
    return;
  }
  const tile_place &t = sh.tile[n % kTilePlaces];
  float *to = job.sums + (int64_t)t.place * (S::kQueries * S::kHeadDim) +
              page * S::kQueries * kPageCols + 4 * (threadIdx.x % kWarpgroup);
  wait_for(&sh.turn_come[n % 2], n / 2 & 1);
  if (add_in_turn<true>(dq, to, sh.turn[n % kTilePlaces])) {
    store_columns<typename S::T>(dq, job, x, t, S::kQueries, page * kPageCols);
  }
  __syncwarp();
  if (threadIdx.x % kWarp == 0) {
    arrive(&sh.turn_used[n % 2]);
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
