/** Attention backward on Hopper: shapes of tiles, where they lie in shared memory, and the thread
 * that fetches them. */
#ifndef TGI_OPS_ATTENTION_BWD_TILES_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_TILES_SM90_CUH

#include "cuda/tma.cuh"
#include "cuda/warpgroup.cuh"
#include "cuda/wgmma.cuh"
#include "ops/attention/attention_bwd_plan_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** kD: elements of q, k and v that products take. kQueries: of a tile. kCap: softcap. */
template <typename T_, int kD_, int kQueries_, bool kCap_> struct bwd_shape {
  using T = T_;
  static constexpr int kD = kD_, kQueries = kQueries_;
  static constexpr bool kCap = kCap_;
  static constexpr int kPages = (kD + kPageCols - 1) / kPageCols;
  static constexpr int kGroups = 2, kThreads = (kGroups + 1) * kWarpgroup, kStages = 2;
  static constexpr int kKeyPage = kKeyRows * kPageRow, kQueryPage = kQueries * kPageRow;
  /* Of a tile's sums of dq a warpgroup makes a page of columns, or half of the only page's rows. */
  static constexpr int kPart = kPages == 2 ? kQueries : kQueries / 2;
  static constexpr int kLoaderRegisters = kCap ? 40 : 24, kRegisters = kCap ? 232 : 240;
};

/** A tile of queries of its sequence, and of a head among all. */
struct tile_place {
  int tile, place;
};

constexpr int kTilePlaces = 4; /* stages, the tile whose part of dq is to come, and one more */

template <typename S> struct alignas(1024) bwd_shared {
  uint8_t k[S::kPages * S::kKeyPage], v[S::kPages * S::kKeyPage];
  uint8_t q[S::kStages][S::kPages * S::kQueryPage], dout[S::kStages][S::kPages * S::kQueryPage];
  uint8_t ds[2][S::kGroups][S::kQueryPage]; /* rows are queries, a page for 64 keys */
  float minus[S::kStages][S::kQueries], delta[S::kStages][S::kQueries];
  mbarrier keys_full, keys_empty, full[S::kStages], empty[S::kStages], ds_full[2], ds_empty[2];
  mbarrier turn_come[S::kGroups], turn_used[S::kGroups];
  key_place place[2];
  tile_place tile[kTilePlaces];
};

/* ---- fetching ---- */

/** An item's keys and values. */
template <typename S>
__device__ __forceinline__ void fetch_keys(const CUtensorMap *k_map, const CUtensorMap *v_map,
                                           const key_place &x, bwd_shared<S> &sh)
{
  if (x.high_tile <= x.low_tile) { /* nobody sees them */
    arrive(&sh.keys_full);
    return;
  }
  arrive_expecting(&sh.keys_full, 2 * S::kPages * S::kKeyPage);
#pragma unroll
  for (int i = 0; i < S::kPages; i++) {
    load_page(shared_address(sh.k) + i * S::kKeyPage, k_map, i * kPageCols, x.k_row, x.kv_head,
              x.k_index, &sh.keys_full);
    load_page(shared_address(sh.v) + i * S::kKeyPage, v_map, i * kPageCols, x.k_row, x.kv_head,
              x.k_index, &sh.keys_full);
  }
}

/** A tile of queries, the n-th of all. */
template <typename S>
__device__ __forceinline__ void fetch_tile(const CUtensorMap *q_map, const CUtensorMap *dout_map,
                                           const bwd_job &job, const key_place &x, unsigned n,
                                           int tile, int head, bwd_shared<S> &sh)
{
  const int s = n % S::kStages, place = (x.q_tile + tile) * (int)job.c.l.q_heads + head;
  wait_for(&sh.empty[s], n / S::kStages & 1 ^ 1);
  sh.tile[n % kTilePlaces] = {tile, place};
  arrive_expecting(&sh.full[s],
                   2 * S::kPages * S::kQueryPage + 2 * S::kQueries * (int)sizeof(float));
  bulk_load(sh.minus[s], job.minus + (int64_t)place * S::kQueries,
            S::kQueries * (int)sizeof(float), &sh.full[s]);
  bulk_load(sh.delta[s], job.delta + (int64_t)place * S::kQueries,
            S::kQueries * (int)sizeof(float), &sh.full[s]);
#pragma unroll
  for (int page = 0; page < S::kPages; page++) {
    load_page(shared_address(sh.q[s]) + page * S::kQueryPage, q_map, page * kPageCols,
              x.q_row + tile * S::kQueries, head, x.q_index, &sh.full[s]);
  }
#pragma unroll
  for (int page = 0; page < S::kPages; page++) {
    load_page(shared_address(sh.dout[s]) + page * S::kQueryPage, dout_map, page * kPageCols,
              x.q_row + tile * S::kQueries, head, x.q_index, &sh.full[s]);
  }
}

/** All items of the block, in the order of their numbers: who waits for an earlier block of keys
 * waits for one that is under way. An item's first tiles of queries are asked for before its keys,
 * whose place the item before may still store from. */
template <typename S>
__device__ __forceinline__ void fetch_items(const CUtensorMap *q_map, const CUtensorMap *k_map,
                                            const CUtensorMap *v_map, const CUtensorMap *dout_map,
                                            const bwd_job &job, bwd_shared<S> &sh)
{
  unsigned n = 0;
  int item = atomicAdd(job.taken, 1);
#pragma unroll 1
  for (unsigned k = 0;; k++) {
    key_place &x = sh.place[k % 2];
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
      item = atomicAdd(job.taken, 1); /* asked for now, needed after this one */
    } while (x.state == kNoMore);
    int left = (x.high_tile - x.low_tile) * (int)job.c.l.group, tile = x.low_tile;
    int head = x.kv_head * (int)job.c.l.group, ahead = min(left, S::kStages);
#pragma unroll 1
    for (;; left--, n++) {
      if (ahead-- == 0) {
        wait_for(&sh.keys_empty, k & 1 ^ 1);
        fetch_keys<S>(k_map, v_map, x, sh);
      }
      if (left == 0) {
        break;
      }
      fetch_tile<S>(q_map, dout_map, job, x, n, tile, head, sh);
      if (++tile == x.high_tile) {
        tile = x.low_tile;
        head++;
      }
    }
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

/** By a thread for each warpgroup that adds to dq: waits until the blocks of keys before this one
 * have added to a tile, lets the warpgroup add, and says when it has. So nobody waits for memory
 * who computes. */
template <typename S>
__device__ __forceinline__ void keep_order(const bwd_job &job, bwd_shared<S> &sh, int group)
{
  const int heads = (int)job.c.l.group, q_heads = (int)job.c.l.q_heads;
  unsigned n = 0;
#pragma unroll 1
  for (unsigned k = 0;; k++) {
    wait_for(&sh.keys_full, k & 1);
    const key_place &x = sh.place[k % 2];
    if (x.state == kNoMore) {
      return;
    }
#pragma unroll 1
    for (int head = x.kv_head * heads; head < (x.kv_head + 1) * heads; head++) {
#pragma unroll 1
      for (int tile = x.low_tile; tile < x.high_tile; tile++, n++) {
        const int rank = x.key0 / kKeyRows - first_block_of(job.rule, x, tile, S::kQueries);
        int *turn = job.turns + ((int64_t)(x.q_tile + tile) * q_heads + head) * S::kGroups + group;
        while (read_turn(turn) != rank) {
        }
        arrive(&sh.turn_come[group]);
        wait_for(&sh.turn_used[group], n & 1);
        write_turn(turn, rank + 1);
      }
    }
    arrive(&sh.keys_empty);
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
