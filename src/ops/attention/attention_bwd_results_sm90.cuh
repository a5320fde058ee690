/** Attention backward on Hopper: what becomes of a warpgroup's sums. */
#ifndef TGI_OPS_ATTENTION_BWD_RESULTS_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_RESULTS_SM90_CUH

#include "ops/attention/attention_bwd_tiles_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** to[0 .. 3] += v, whoever else adds. */
__device__ __forceinline__ void add_at_once(float *to, float a, float b, float c, float d)
{
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(to)), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

/** Adds a warpgroup's part of dq of the n-th tile to the sums in memory: each warp to 512 bytes of
 * its own at a time. */
template <typename S>
__device__ __forceinline__ void add_sums(const float (&dq)[S::kPart / 2], const bwd_job &job,
                                         unsigned n, int group, bwd_shared<S> &sh)
{
  if (job.turns) {
    wait_for(&sh.turn_come[group], n & 1);
  }
  if (job.dq.data) {
    const int place = sh.tile[n % kTilePlaces].place;
    float *to = job.sums + (int64_t)place * (S::kQueries * S::kPages * kPageCols) +
                group * S::kPart * kPageCols + 4 * (threadIdx.x % kWarpgroup);
#pragma unroll
    for (int i = 0; i < S::kPart / 8; i++) {
      add_at_once(to + i * 4 * kWarpgroup, dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
    }
  }
  if (job.turns) {
    __syncwarp();
    if (threadIdx.x % kWarp == 0) {
      arrive(&sh.turn_used[group]);
    }
  }
}

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
