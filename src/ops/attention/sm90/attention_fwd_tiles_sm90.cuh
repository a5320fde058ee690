/** Attention forward on Hopper: tiles, the layout of shared memory, and the producer thread, which
 * loads tiles by TMA. The producer runs ahead through the tiles of its block: keys of a block are
 * loaded before the values of the block before, which is the order in which consumers need them. */
#ifndef TGI_OPS_ATTENTION_FWD_TILES_SM90_CUH
#define TGI_OPS_ATTENTION_FWD_TILES_SM90_CUH

#include "cuda/tma.cuh"
#include "cuda/warpgroup.cuh"
#include "cuda/wgmma.cuh"
#include "ops/attention/sm90/attention_configs_sm90.cuh"
#include "ops/attention/sm90/attention_fwd_splits_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** A forward configuration with its dtype, and what follows from them. */
template <typename T_, typename Config> struct fwd_tile : Config {
  using T = T_;
  static_assert(Config::kQueries == 64 * Config::kWarpGroups, "64 queries a warp group");
  static constexpr int kThreads = (Config::kWarpGroups + 1) * kWarpgroup;
  static constexpr int kQkPages = (Config::kHeadDim + kPageCols - 1) / kPageCols;
  static constexpr int kValuePages = (Config::kValueDim + kPageCols - 1) / kPageCols;
  static constexpr int kQueryPage = 64 * kPageRow, kKeyPage = Config::kKeys * kPageRow;
  static constexpr int kLoaderRegisters = Config::kWarpGroups == 3 ? 32 : 40;
  static constexpr int kRegisters = Config::kWarpGroups == 3 ? 160 : 232;
};

constexpr int kPlaces = 4; /* one more than the tiles that threads can be at */

template <typename S> struct alignas(1024) fwd_shared {
  uint8_t q[S::kQueryStages][S::kWarpGroups]
           [(S::kQkPages > S::kValuePages ? S::kQkPages : S::kValuePages) * S::kQueryPage];
  uint8_t k[S::kStages][S::kQkPages * S::kKeyPage];
  uint8_t v[S::kStages][S::kValuePages * S::kKeyPage];
  mbarrier q_full[S::kQueryStages][S::kWarpGroups], q_empty[S::kQueryStages][S::kWarpGroups];
  mbarrier k_full[S::kStages], k_empty[S::kStages], v_full[S::kStages], v_empty[S::kStages];
  query_place place[kPlaces];
  int split[kPlaces];
};

/* ---- fetching ---- */

template <typename S>
__device__ __forceinline__ void fetch_tiles(const CUtensorMap *q_map, const CUtensorMap *k_map,
                                            const CUtensorMap *v_map, const fwd_job &job,
                                            fwd_shared<S> &sh)
{
  unsigned n = 0; /* blocks of keys so far */
  int item = blockIdx.x;
#pragma unroll 1
  for (int tile = 0;; tile++) {
    const int slot = tile % S::kQueryStages, turn = tile / S::kQueryStages & 1;
    query_place &x = sh.place[tile % kPlaces];
    const int split = S::kSplitKeys ? item % job.splits : 0;
    if (!put_place(job.work, S::kSplitKeys ? item / job.splits : item, &x)) {
#pragma unroll 1
      for (int g = 0; g < S::kWarpGroups; g++) {
        wait_for(&sh.q_empty[slot][g], turn ^ 1);
        arrive(&sh.q_full[slot][g]);
      }
      return;
    }
    if (S::kSplitKeys) {
      take_split(job, split, x);
      sh.split[tile % kPlaces] = split;
    }
    /* Requested here, used after this tile: the atomic's latency is hidden. */
    item = job.work.taken ? (int)gridDim.x + atomicAdd(job.work.taken, 1) : item_of_turn(tile + 1);
    const int kv_head = x.head / job.work.group, k_row = x.k_row, k_index = x.k_index;
    const int low_block = x.low_block, high_block = x.high_block;
#pragma unroll 1
    for (int block = high_block - 1; block >= low_block - 1; block--) {
      if (block >= low_block) {
        const int s = n % S::kStages;
        wait_for(&sh.k_empty[s], n / S::kStages & 1 ^ 1);
        n++;
        arrive_expecting(&sh.k_full[s], S::kQkPages * S::kKeyPage);
#pragma unroll
        for (int page = 0; page < S::kQkPages; page++) {
          load_page(shared_address(sh.k[s]) + page * S::kKeyPage, k_map, page * kPageCols,
                    k_row + block * S::kKeys, kv_head, k_index, &sh.k_full[s]);
        }
      }
      if (block == high_block - 1) {
#pragma unroll 1
        for (int g = 0; g < S::kWarpGroups; g++) {
          wait_for(&sh.q_empty[slot][g], turn ^ 1);
          arrive_expecting(&sh.q_full[slot][g], S::kQkPages * S::kQueryPage);
#pragma unroll
          for (int page = 0; page < S::kQkPages; page++) {
            load_page(shared_address(sh.q[slot][g]) + page * S::kQueryPage, q_map, page * kPageCols,
                      x.q_row + g * 64, x.head, x.q_index, &sh.q_full[slot][g]);
          }
        }
      } else {
        const unsigned before = block >= low_block ? n - 2 : n - 1;
        const int s = before % S::kStages;
        wait_for(&sh.v_empty[s], before / S::kStages & 1 ^ 1);
        arrive_expecting(&sh.v_full[s], S::kValuePages * S::kKeyPage);
#pragma unroll
        for (int page = 0; page < S::kValuePages; page++) {
          load_page(shared_address(sh.v[s]) + page * S::kKeyPage, v_map, page * kPageCols,
                    k_row + (block + 1) * S::kKeys, kv_head, k_index, &sh.v_full[s]);
        }
      }
    }
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
