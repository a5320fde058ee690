/** Attention backward on Hopper: tiles, the layout of shared memory, and the producer warp group:
 * threads that take work items, load tiles by TMA, and keep the order in which blocks add to dq. */
#ifndef TGI_OPS_ATTENTION_BWD_TILES_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_TILES_SM90_CUH

#include "cuda/tma.cuh"
#include "cuda/warpgroup.cuh"
#include "cuda/wgmma.cuh"
#include "ops/attention/sm90/attention_bwd_plan_sm90.cuh"
#include "ops/attention/sm90/attention_configs_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** A backward configuration with its dtype, and what follows from them. */
template <typename T_, typename Config> struct bwd_tile : Config {
  using T = T_;
  using Config::kHeadDim, Config::kKeys, Config::kQueries, Config::kOrdered, Config::kSoftcap;
  static constexpr int kThreads = (Config::kWarpGroups + 1) * kWarpgroup;
  static constexpr int kPages = (kHeadDim + kPageCols - 1) / kPageCols, kValuePages = kPages;
  static constexpr int kKeyPage = kKeys * kPageRow, kQueryPage = kQueries * kPageRow;
  /* A warp group computes one page of columns of a tile's dq, or half of the rows of its only page.
   */
  static constexpr int kPart = kPages == 2 ? kQueries : kQueries / 2;
  /* The last block to add to a tile of dq rounds it, too: it saves the pass where memory is the
   * bound. */
  static constexpr bool kLastRounds = kOrdered && kPages == 1;
  /* minus and delta are loaded before the products, where registers can hold them. */
  static constexpr bool kReadsFirst = !kOrdered || (!kSoftcap && kPages == 2 && kQueries == 64);
  /* A masked pair's p is 0, and so is its ds, unless dp is not finite: such rows are recomputed.
   * With 80 queries registers suffice only if ds is masked, too. */
  static constexpr bool kHidesTwice = kQueries == 80;
  /* Buffers in which results are staged: as many as shared memory allows. */
  static constexpr int kStaged = kPages == 2 && kQueries > 64 ? 1 : 2;
  static constexpr int kLoaderRegisters = kSoftcap ? 40 : 24, kRegisters = kSoftcap ? 232 : 240;
};

/** A tile of queries: its index in its sequence, its head, and its index among the tiles of all
 * heads. */
struct tile_place {
  int tile, head, place;
};

/** Whether the item's block of keys is the first or the last one that adds to a tile's dq. */
enum turn_ends { kFirstTurn = 1, kLastTurn = 2 };

constexpr int kTilePlaces = 8; /* more than the tiles that threads can be at */
constexpr int kItemPlaces = 4; /* the same for work items */

template <typename S> struct alignas(1024) bwd_shared {
  uint8_t k[S::kPages * S::kKeyPage], v[S::kPages * S::kKeyPage];
  uint8_t q[S::kStages][S::kPages * S::kQueryPage], dout[S::kStages][S::kPages * S::kQueryPage];
  uint8_t ds[2][S::kWarpGroups][S::kQueryPage]; /* rows are queries, a page for 64 keys */
  uint8_t staged[S::kStaged][S::kWarpGroups][S::kPages * kGroupRows * kPageRow];
  float minus[S::kStages][S::kQueries], delta[S::kStages][S::kQueries];
  mbarrier keys_full, keys_empty, full[S::kStages], empty[S::kStages], ds_full[2], ds_empty[2];
  mbarrier turn_come[2], turn_used[2], turn_told[2], place_full, place_used;
  key_place place[kItemPlaces];
  tile_place tile[kTilePlaces];
  int turn[kTilePlaces]; /* turn_ends */
  int parts_before[S::kWarpGroups];
};

/* ---- fetching ---- */

/** Loads an item's keys and values. */
template <typename S>
__device__ __forceinline__ void fetch_keys(const CUtensorMap *k_map, const CUtensorMap *v_map,
                                           const key_place &x, bwd_shared<S> &sh)
{
  if (x.high_tile <= x.low_tile) { /* no query sees them */
    arrive(&sh.keys_full);
    return;
  }
  arrive_expecting(&sh.keys_full, (S::kPages + S::kValuePages) * S::kKeyPage);
#pragma unroll
  for (int i = 0; i < S::kPages; i++) {
    load_page(shared_address(sh.k) + i * S::kKeyPage, k_map, i * kPageCols, x.k_row, x.kv_head,
              x.k_index, &sh.keys_full);
  }
#pragma unroll
  for (int i = 0; i < S::kValuePages; i++) {
    load_page(shared_address(sh.v) + i * S::kKeyPage, v_map, i * kPageCols, x.k_row, x.kv_head,
              x.k_index, &sh.keys_full);
  }
}

/** Loads the n-th tile of queries. Whatever is possible is done before the wait. */
template <typename S>
__device__ __forceinline__ void fetch_tile(const CUtensorMap *q_map, const CUtensorMap *dout_map,
                                           const bwd_job &job, const key_place &x, unsigned n,
                                           int tile, int head, bwd_shared<S> &sh)
{
  constexpr int kBytes = S::kQueries * (int)sizeof(float);
  const int s = n % S::kStages, place = (x.q_tile + tile) * (int)job.c.l.q_heads + head;
  const int row = x.q_row + tile * S::kQueries, index = x.q_index;
  sh.tile[n % kTilePlaces] = {tile, head, place};
  wait_for(&sh.empty[s], n / S::kStages & 1 ^ 1);
  arrive_expecting(&sh.full[s], (S::kPages + S::kValuePages) * S::kQueryPage + 2 * kBytes);
#pragma unroll
  for (int page = 0; page < S::kPages; page++) {
    load_page(shared_address(sh.q[s]) + page * S::kQueryPage, q_map, page * kPageCols, row, head,
              index, &sh.full[s]);
  }
#pragma unroll
  for (int page = 0; page < S::kValuePages; page++) {
    load_page(shared_address(sh.dout[s]) + page * S::kQueryPage, dout_map, page * kPageCols, row,
              head, index, &sh.full[s]);
  }
  bulk_load(sh.minus[s], job.minus + (int64_t)place * S::kQueries, kBytes, &sh.full[s]);
  bulk_load(sh.delta[s], job.delta + (int64_t)place * S::kQueries, kBytes, &sh.full[s]);
}

/** Loads all work items of the block, in the order of their numbers: so a block that waits for an
 * earlier block of keys waits for one that already runs. An item's first tiles of queries are
 * loaded before its keys, from whose buffer the item before may still store results. Tiles go from
 * the last one down, the heads of each together. So all blocks of keys visit tiles in the same
 * order, later blocks fewer of them, and a block that has waited once at its start need not wait
 * again. */
template <typename S>
__device__ __forceinline__ void fetch_items(const CUtensorMap *q_map, const CUtensorMap *k_map,
                                            const CUtensorMap *v_map, const CUtensorMap *dout_map,
                                            const bwd_job &job, bwd_shared<S> &sh)
{
  unsigned n = 0;
  int item = atomicAdd(job.taken, 1);
#pragma unroll 1
  for (unsigned k = 0;; k++) {
    key_place &x = sh.place[k % kItemPlaces];
    do {
      x.state = kNoMore;
      if (item >= job.items) {
        wait_for(&sh.keys_empty, k & 1 ^ 1);
        arrive(&sh.keys_full);
        return;
      }
      const uint4 *from = reinterpret_cast<const uint4 *>(job.place + item);
#pragma unroll 1
      for (int i = 0; i < (int)(sizeof(key_place) / sizeof(uint4)); i++) {
        reinterpret_cast<uint4 *>(&x)[i] = from[i];
      }
      if (x.state == kNoMore) {
        item = atomicAdd(job.taken, 1);
      }
    } while (x.state == kNoMore);
    const int heads = job.heads, head0 = first_head(job, x);
    int left = (x.high_tile - x.low_tile) * heads, tile = x.high_tile - 1, head = 0;
    int ahead = min(left, S::kStages);
#pragma unroll 1
    for (;; left--, n++) {
      if (ahead-- == 0) {
        wait_for(&sh.keys_empty, k & 1 ^ 1);
        fetch_keys<S>(k_map, v_map, x, sh);
      }
      if (left == 0) {
        break;
      }
      fetch_tile<S>(q_map, dout_map, job, x, n, tile, head0 + head, sh);
      if (++head == heads) {
        head = 0;
        tile--;
      }
    }
    item = atomicAdd(job.taken, 1); /* late, so that the block that is free first gets it */
  }
}

/** In any order there are no turns, and two threads share the work. This one takes work items, and
 * loads their keys as soon as the buffer is free. */
template <typename S>
__device__ __forceinline__ void take_items(const CUtensorMap *k_map, const CUtensorMap *v_map,
                                           const bwd_job &job, bwd_shared<S> &sh)
{
#pragma unroll 1
  for (unsigned k = 0;; k++) {
    key_place &x = sh.place[k % kItemPlaces];
    wait_for(&sh.place_used, k & 1 ^ 1); /* all tiles of the item before are loaded */
    do {
      const int item = atomicAdd(job.taken, 1);
      x.state = kNoMore;
      if (item >= job.items) {
        arrive(&sh.place_full);
        wait_for(&sh.keys_empty, k & 1 ^ 1);
        arrive(&sh.keys_full);
        return;
      }
      const uint4 *from = reinterpret_cast<const uint4 *>(job.place + item);
      const uint4 a = from[0], b = from[1], c = from[2], d = from[3];
      uint4 *to = reinterpret_cast<uint4 *>(&x);
      to[0] = a, to[1] = b, to[2] = c, to[3] = d;
    } while (x.state == kNoMore);
    arrive(&sh.place_full);
    wait_for(&sh.keys_empty, k & 1 ^ 1);
    fetch_keys<S>(k_map, v_map, x, sh);
  }
}

/** The other one loads tiles of queries, in the order of fetch_items. */
template <typename S>
__device__ __forceinline__ void fetch_tiles(const CUtensorMap *q_map, const CUtensorMap *dout_map,
                                            const bwd_job &job, bwd_shared<S> &sh)
{
  unsigned n = 0;
#pragma unroll 1
  for (unsigned k = 0;; k++) {
    const key_place &x = sh.place[k % kItemPlaces];
    wait_for(&sh.place_full, k & 1);
    if (x.state == kNoMore) {
      return;
    }
    const int heads = job.heads, head0 = first_head(job, x);
#pragma unroll 1
    for (int tile = x.high_tile - 1; tile >= x.low_tile; tile--) {
#pragma unroll 1
      for (int head = 0; head < heads; head++, n++) {
        fetch_tile<S>(q_map, dout_map, job, x, n, tile, head0 + head, sh);
      }
    }
    arrive(&sh.place_used);
  }
}

/* ---- the order of sums ---- */

__device__ __forceinline__ int read_turn(const int *turn)
{
  int v;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
               : "=r"(v)
               : "l"(__cvta_generic_to_global(turn))
               : "memory");
  return v;
}

__device__ __forceinline__ void write_turn(int *turn, int v)
{
  asm volatile("st.release.gpu.global.s32 [%0], %1;"
               :
               : "l"(__cvta_generic_to_global(turn)), "r"(v)
               : "memory");
}

/** Keeps the order of sums, by three threads, so that no consumer waits for memory. Thread 0 waits
 * until the blocks of keys before this one have added to a tile of dq, then lets the warp groups
 * add. Threads 1 and 2 publish that they have, each for every second tile: completing an addition
 * takes longer than a tile. */
template <typename S>
__device__ __forceinline__ void keep_order(const bwd_job &job, bwd_shared<S> &sh, int number)
{
  const int heads = job.heads, q_heads = (int)job.c.l.q_heads;
  unsigned n = 0;
#pragma unroll 1
  for (unsigned k = 0;; k++) {
    wait_for(&sh.keys_full, k & 1);
    const key_place &x = sh.place[k % kItemPlaces];
    if (x.state == kNoMore) {
      return;
    }
    const int block = x.key0 / S::kKeys, head0 = first_head(job, x);
#pragma unroll 1
    for (int tile = x.high_tile - 1; tile >= x.low_tile; tile--) {
      int before = block - first_block_of(job.rule, x, tile, S::kQueries, S::kKeys);
      int at = (x.q_tile + tile) * q_heads + head0;
      if (!S::kLastRounds && x.key0 >= job.second_from) { /* it adds to the second sums */
        before = min(before, block - job.second_from / S::kKeys);
        at += job.query_tiles * q_heads;
      }
      const bool last =
          S::kLastRounds && block == last_block_of(job.rule, x, tile, S::kQueries, S::kKeys);
#pragma unroll 1
      for (int head = 0; head < heads; head++, n++) {
        int *turn = job.turns + at + head;
        if (number == 1 + (int)(n % 2)) {
          wait_for(&sh.turn_used[n % 2], n / 2 & 1);
          write_turn(turn, before + 1);
          arrive(&sh.turn_told[n % 2]);
        } else if (number == 0) {
          while (read_turn(turn) != before) {
          }
          wait_for(&sh.turn_told[n % 2], n / 2 & 1 ^ 1);
          sh.turn[n % kTilePlaces] = (before == 0 ? kFirstTurn : 0) | (last ? kLastTurn : 0);
          arrive(&sh.turn_come[n % 2]);
        }
      }
    }
    arrive(&sh.keys_empty);
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
