/** Attention backward on Hopper: what a consumer warp group does with its accumulators. Its part of
 * dq is added to sums in memory after each tile, in order or in any order; dk and dv are joined,
 * rounded and stored at an item's end. */
#ifndef TGI_OPS_ATTENTION_BWD_RESULTS_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_RESULTS_SM90_CUH

#include "ops/attention/sm90/attention_bwd_tiles_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** to[0 .. 3] += v, atomically. */
__device__ __forceinline__ void add_at_once(float *to, float a, float b, float c, float d)
{
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(to)), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

__device__ __forceinline__ void store_four(float *to, float a, float b, float c, float d)
{
  asm volatile("st.relaxed.gpu.global.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(to)), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}

__device__ __forceinline__ float4 load_four(const float *from)
{
  float4 v;
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(__cvta_generic_to_global(from))
               : "memory");
  return v;
}

/** Adds a warp group's accumulators to sums in memory; each warp writes 512 adjacent bytes at a
 * time. */
template <int kN> __device__ __forceinline__ void add_all(const float (&d)[kN], float *to)
{
#pragma unroll
  for (int i = 0; i < kN / 4; i++) {
    add_at_once(to + i * 4 * kWarpgroup, d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]);
  }
}

/** The same in turns: the first block stores, later ones add. With kLastRounds the last block reads
 * the sums back into d instead, and the result is true. */
template <bool kLastRounds, int kN>
__device__ __forceinline__ bool add_in_turn(float (&d)[kN], float *to, int turn)
{
  if (turn == 0) {
    add_all(d, to);
  } else if (!kLastRounds || turn == kFirstTurn) {
#pragma unroll
    for (int i = 0; i < kN / 4; i++) {
      store_four(to + i * 4 * kWarpgroup, d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]);
    }
  } else {
    if (turn == kLastTurn) {
#pragma unroll
      for (int i = 0; i < kN / 4; i++) {
        const float4 v = load_four(to + i * 4 * kWarpgroup);
        d[4 * i] += v.x;
        d[4 * i + 1] += v.y;
        d[4 * i + 2] += v.z;
        d[4 * i + 3] += v.w;
        if (kN > 48 && i == kN / 8 - 1) {
          __syncwarp(); /* limits loads in flight to half: registers */
        }
      }
    }
    return true;
  }
  return false;
}

/** Stores rows of pages by all threads of the warp group, where TMA would overwrite the next rows.
 */
__device__ __forceinline__ void store_rows(const heads_view<uint16_t> &to, int index, int row,
                                           int head, int rows, int width, uint32_t page,
                                           int page_bytes)
{
  const int chunks = width / 8;
#pragma unroll 1
  for (int e = threadIdx.x % kWarpgroup; e < rows * chunks; e += kWarpgroup) {
    const int r = e / chunks, chunk = e % chunks;
    uint32_t w[4];
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                 : "r"(page_chunk(page + chunk / 8 * page_bytes, r, chunk % 8))
                 : "memory");
    store_words(to.data + to.at(index, row + r, head) + chunk * 8, w);
  }
}

/** Waits until TMA has read the staged results; then the warp group may write there. */
__device__ __forceinline__ void wait_for_staged(int group)
{
  if (threadIdx.x % kWarpgroup == 0) {
    wait_for_store_reads();
  }
  sync_some(2 + group, kWarpgroup);
}

/** Rounds and stores a warp group's part of dq: a page of columns, or half of the rows. */
template <typename S>
__device__ __forceinline__ void
store_queries(const CUtensorMap *map, const float (&dq)[S::kPart / 2], const bwd_job &job,
              const key_place &x, const tile_place &t, int group, bwd_shared<S> &sh)
{
  using T = typename S::T;
  const int thread = threadIdx.x % kWarpgroup, lane = threadIdx.x % kWarp, warp = thread / kWarp;
  const uint32_t page = shared_address(sh.staged[0][group]);
  const int first = t.tile * S::kQueries + (S::kPages == 1 ? group * S::kPart : 0);
  const int column = S::kPages == 1 ? 0 : group * kPageCols;
  bool lost = false;
  wait_for_staged(group);
#pragma unroll
  for (int i = 0; i < S::kPart / 16; i++) {
    uint32_t pair[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float a = dq[8 * i + 2 * j] * job.scale, b = dq[8 * i + 2 * j + 1] * job.scale;
      lost = lost || a != a || b != b;
      pair[j] = round_pair<T>(a, b);
    }
    store_matrices_turned(
        page_chunk(page, 16 * i + 8 * (lane / 16) + lane % 8, 2 * warp + lane / 8 % 2), pair[0],
        pair[1], pair[2], pair[3]);
  }
  if (lost) {
    job.lost_tile[t.place] = 1;
  }
  publish_to_copies();
  sync_some(2 + group, kWarpgroup);
  const int rows = min(x.nq - first, S::kPart), width = (int)job.c.l.head_dim - column;
  if (job.c.l.packed_q && rows < S::kPart) {
    heads_view<uint16_t> to = job.dq;
    to.data += column;
    store_rows(to, x.q_index, x.q_row + first, t.head, rows, min(width, kPageCols), page, 0);
    sync_some(2 + group, kWarpgroup);
  } else if (thread == 0 && rows > 0 && width > 0) {
    store_page(map, column, x.q_row + first, t.head, x.q_index, page);
    commit_stores();
  }
}

/** Adds a warp group's part of dq of the n-th tile, at `place`, to the sums in memory; in order,
 * once it is this block's turn. */
template <typename S>
__device__ __forceinline__ void add_sums(const CUtensorMap *dq_map, float (&dq)[S::kPart / 2],
                                         const bwd_job &job, const key_place &x, unsigned n,
                                         int place, int group, bwd_shared<S> &sh)
{
  if (!job.dq.data) {
    return;
  }
  const bool second = S::kOrdered && !S::kLastRounds && x.key0 >= job.second_from;
  const int64_t at = place + (second ? job.query_tiles * (int)job.c.l.q_heads : 0);
  float *to = job.sums + at * (S::kQueries * S::kPages * kPageCols) + group * S::kPart * kPageCols +
              4 * (threadIdx.x % kWarpgroup);
  if constexpr (!S::kOrdered) {
    add_all(dq, to);
    return;
  }
  wait_for(&sh.turn_come[n % 2], n / 2 & 1);
  const bool last = add_in_turn<S::kLastRounds>(dq, to, sh.turn[n % kTilePlaces]);
  if constexpr (S::kLastRounds) {
    if (last) {
      store_queries<S>(dq_map, dq, job, x, sh.tile[n % kTilePlaces], group, sh);
    }
  }
  __syncwarp();
  if (threadIdx.x % kWarp == 0) {
    arrive(&sh.turn_used[n % 2]);
  }
}

/** Joins the sums of a block of keys that is two work items: the first item to finish writes its
 * sums, the `which`-th of the block, and the other one adds them to its own. False: d was written.
 * Bits do not depend on which is first, because a + b equals b + a. */
template <typename S>
__device__ __forceinline__ bool join_parts(float (&d)[S::kHeadDim / 2], const bwd_job &job,
                                           const key_place &x, int which, int group,
                                           bwd_shared<S> &sh)
{
  constexpr int kLeft = 2; /* more than the arrivals before sums are written */
  if (job.parts == 1) {
    return true;
  }
  const int thread = threadIdx.x % kWarpgroup;
  const int64_t of = (int64_t)(x.item / job.parts) * kJoined + which * S::kWarpGroups + group;
  float4 *const sums = job.part_sums + of * (kGroupRows * S::kHeadDim / 4) + thread;
  if (thread == 0) {
    sh.parts_before[group] = atomicAdd(job.joined + of, 1);
  }
  sync_some(2 + group, kWarpgroup);
  if (sh.parts_before[group] == 0) {
#pragma unroll
    for (int i = 0; i < S::kHeadDim / 8; i++) {
      sums[i * kWarpgroup] = make_float4(d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]);
    }
    __threadfence();
    sync_some(2 + group, kWarpgroup);
    if (thread == 0) {
      atomicAdd(job.joined + of, kLeft);
    }
    return false;
  }
  if (thread == 0) {
    while (read_turn(job.joined + of) <= kLeft) {
    }
  }
  sync_some(2 + group, kWarpgroup);
#pragma unroll
  for (int i = 0; i < S::kHeadDim / 8; i++) {
    const float4 v = __ldcg(sums + i * kWarpgroup);
    d[4 * i] += v.x;
    d[4 * i + 1] += v.y;
    d[4 * i + 2] += v.z;
    d[4 * i + 3] += v.w;
  }
  return true;
}

/** Stores a warp group's 64 rows of sums, times `by`, from the block's row `first` on, through
 * pages in shared memory: by TMA or, where the rows after the sequence's last one belong to
 * another, by its threads. */
template <typename S>
__device__ __forceinline__ void store_keys(const CUtensorMap *map, const heads_view<uint16_t> &to,
                                           const float (&d)[S::kHeadDim / 2], float by,
                                           uint32_t page, const bwd_job &job, const key_place &x,
                                           int first, int group, int width)
{
  using T = typename S::T;
  int thread = threadIdx.x % kWarpgroup;
  constexpr int kPageBytes = kGroupRows * kPageRow;
  asm volatile(
      ""
      : "+r"(thread)); /* keeps addresses from being computed early and held in registers */
  const int lane = thread % kWarp, warp = thread / kWarp;
  const int row = x.k_row + first, rows = x.rows - first;
  if (!to.data) {
    return;
  }
  bool lost = false;
#pragma unroll
  for (int i = 0; i < S::kHeadDim / 2; i++) {
    lost = lost || d[i] != d[i];
  }
  if (lost) {
    job.lost[x.item / job.parts] = 1;
  }
  by = x.state == kOutOfRange ? CUDART_NAN_F : by;
#pragma unroll
  for (int i = 0; i < S::kHeadDim / 16; i++) {
    uint32_t pair[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      pair[j] = round_pair<T>(d[8 * i + 2 * j] * by, d[8 * i + 2 * j + 1] * by);
    }
    store_matrices(
        page_chunk(page + i / 4 * kPageBytes, 16 * warp + lane % 16, 2 * (i % 4) + lane / 16),
        pair[0], pair[1], pair[2], pair[3]);
  }
  publish_to_copies();
  sync_some(2 + group, kWarpgroup);
  if (job.c.l.packed_k && rows < kGroupRows) {
    store_rows(to, x.k_index, row, x.kv_head, rows, width, page, kPageBytes);
  } else if (thread == 0 && rows > 0) {
#pragma unroll
    for (int i = 0; i < S::kPages; i++) {
      store_page(map, i * kPageCols, row, x.kv_head, x.k_index, page + i * kPageBytes);
    }
    commit_stores();
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
