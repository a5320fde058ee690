/** Attention backward on Hopper: what becomes of a warpgroup's sums. */
#ifndef TGI_OPS_ATTENTION_BWD_RESULTS_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_RESULTS_SM90_CUH

#include "ops/attention/attention_bwd_tiles_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

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

/** to[0 .. 3] += v, whoever else adds. */
__device__ __forceinline__ void add_at_once(float *to, float a, float b, float c, float d)
{
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(to)), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

/**
 * Adds a warpgroup's parts of dq to their sums in memory: each warp to 512 bytes of its own at a
 * time. In order of the blocks of keys, if job.turns: a warp waits until the blocks before it have
 * added, and says that it has when it comes with the next tile, for by then its additions are done
 * and to wait for them costs nothing.
 */
template <typename S> struct dq_sums {
  const bwd_job &job;
  const key_place &x;
  int group, place, before; /* the tile of a head, and the one before; -1: none */

  __device__ __forceinline__ dq_sums(const bwd_job &job_, const key_place &x_, int group_)
      : job(job_), x(x_), group(group_), place(-1), before(-1)
  {
  }

  __device__ __forceinline__ void tile_is(int head, int tile)
  {
    place = (x.q_tile + tile) * (int)job.c.l.q_heads + x.kv_head * (int)job.c.l.group + head;
  }

  __device__ __forceinline__ int *turn_of(int of) const
  {
    const int warp = threadIdx.x % kWarpgroup / kWarp;
    return job.turns + (int64_t)of * kSumWarps + group * (kSumWarps / S::kGroups) + warp;
  }

  /** How many blocks of keys come before. */
  __device__ __forceinline__ int rank_of(int of) const
  {
    const int tile = of / (int)job.c.l.q_heads - x.q_tile;
    return x.key0 / kKeyRows - first_block_of(job.rule, x, tile, S::kQueries);
  }

  __device__ __forceinline__ void publish() const
  {
    __syncwarp();
    if (job.turns && before >= 0 && threadIdx.x % kWarp == 0) {
      write_turn(turn_of(before), rank_of(before) + 1);
    }
  }

  __device__ __forceinline__ void add(const float (&dq)[S::kPart / 2])
  {
    if (job.turns) {
      publish();
      if (threadIdx.x % kWarp == 0) {
        const int *turn = turn_of(place), rank = rank_of(place);
        while (read_turn(turn) != rank) {
        }
      }
      __syncwarp();
      before = place;
    }
    if (job.dq.data) {
      float *to = job.sums + (int64_t)place * (S::kQueries * S::kPages * kPageCols) +
                  group * S::kPart * kPageCols + 4 * (threadIdx.x % kWarpgroup);
#pragma unroll
      for (int i = 0; i < S::kPart / 8; i++) {
        add_at_once(to + i * 4 * kWarpgroup, dq[4 * i], dq[4 * i + 1], dq[4 * i + 2],
                    dq[4 * i + 3]);
      }
    }
  }
};

/** Stores a warpgroup's 64 rows of sums times `by` through `page`: by TMA or, where rows behind
 * the sequence's last one are another's, by its threads. */
template <typename S>
__device__ __forceinline__ void store_keys(const CUtensorMap *map, const heads_view<uint16_t> &to,
                                           const float (&d)[S::kD / 2], float by, uint32_t page,
                                           const bwd_job &job, const key_place &x, int group,
                                           int width)
{
  using T = typename S::T;
  const int thread = threadIdx.x % kWarpgroup, lane = threadIdx.x % kWarp, warp = thread / kWarp;
  const int row = x.k_row + kGroupRows * group, rows = x.rows - kGroupRows * group;
  if (!to.data) {
    return;
  }
  bool lost = false;
#pragma unroll
  for (int i = 0; i < S::kD / 2; i++) {
    lost = lost || d[i] != d[i];
  }
  if (lost) {
    job.lost[x.item] = 1;
  }
  by = x.state == kOutOfRange ? CUDART_NAN_F : by;
#pragma unroll
  for (int i = 0; i < S::kD / 16; i++) {
    uint32_t pair[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      pair[j] = round_pair<T>(d[8 * i + 2 * j] * by, d[8 * i + 2 * j + 1] * by);
    }
    store_matrices(
        page_chunk(page + i / 4 * S::kKeyPage, 16 * warp + lane % 16, 2 * (i % 4) + lane / 16),
        pair[0], pair[1], pair[2], pair[3]);
  }
  publish_to_copies();
  sync_some(2 + group, kWarpgroup);
  if (job.c.l.packed_k && rows < kGroupRows) {
    const int chunks = width / 8;
#pragma unroll 1
    for (int e = thread; e < kGroupRows * chunks; e += kWarpgroup) {
      const int r = e / chunks, chunk = e % chunks;
      if (r < rows) {
        uint32_t w[4];
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "r"(page_chunk(page + chunk / 8 * S::kKeyPage, r, chunk % 8))
                     : "memory");
        store_words(to.data + to.at(x.k_index, row + r, x.kv_head) + chunk * 8, w);
      }
    }
  } else if (thread == 0 && rows > 0) {
#pragma unroll
    for (int i = 0; i < S::kPages; i++) {
      store_page(map, i * kPageCols, row, x.kv_head, x.k_index, page + i * S::kKeyPage);
    }
    commit_stores();
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
