/** Attention backward on Hopper: what its two kernels share. */
#ifndef TGI_OPS_ATTENTION_BWD_TILES_SM90_CUH
#define TGI_OPS_ATTENTION_BWD_TILES_SM90_CUH

#include "cuda/tma.cuh"
#include "cuda/warpgroup.cuh"
#include "cuda/wgmma.cuh"
#include "ops/attention/attention_softmax.cuh"
#include "ops/attention/attention_work.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

struct bwd_job {
  attention_call c;
  query_work work;                 /* rule, q_heads, group, nq, size, keys */
  heads_view<uint16_t> dq, dk, dv; /* NULL: not wanted */
  const float *lse;
  float *delta; /* where lse has its elements */
  int64_t places;
  float exponent; /* scores, after the cap, to exponents of 2 */
  float cap_by;   /* scores to what tanh takes */
  float scale, cap;
  int head_dim, v_dim;
  bool packed; /* rows behind a sequence's last one are another's */
};

/** kD: elements of q, k and v that products take. kKeys, kQueries: of a block that one kernel goes
 * through while the other one has a tile of it. */
template <typename T_, int kD_, int kKeys_, int kQueries_, bool kCap_> struct bwd_shape {
  using T = T_;
  static constexpr int kD = kD_, kKeys = kKeys_, kQueries = kQueries_;
  static constexpr bool kCap = kCap_;
  static constexpr int kPages = (kD + kPageCols - 1) / kPageCols;
  static constexpr int kGroups = 2, kThreads = (kGroups + 1) * kWarpgroup;
  static constexpr int kTileRows = 128, kRowsPage = kGroupRows * kPageRow;
  static constexpr int kLoaderRegisters = 40, kRegisters = 232;
};

/** d = a b over kD: pages of both follow each other at a_page and b_page bytes. */
template <typename S, int kN>
__device__ __forceinline__ void multiply_rows_sm90(float (&d)[kN / 2], uint64_t a, int a_page,
                                                   uint64_t b, int b_page)
{
#pragma unroll
  for (int i = 0; i < S::kD / 16; i++) {
    multiply<typename S::T, kN>(d, operand_at(a, i / 4 * a_page + i % 4 * 32),
                                operand_at(b, i / 4 * b_page + i % 4 * 32), i > 0);
  }
}

/** d += a b, a of kDepth columns in registers, b's rows its depth. */
template <typename S, int kDepth>
__device__ __forceinline__ void add_rows_sm90(float (&d)[S::kD / 2],
                                              const uint32_t (&a)[kDepth / 4], uint64_t b)
{
#pragma unroll
  for (int i = 0; i < kDepth / 16; i++) {
    multiply_turned<typename S::T, S::kD>(d, a + 4 * i, operand_at(b, i * 16 * kPageRow), true);
  }
}

/** Stores a warpgroup's 64 rows of sums times `by`: through `page`, by TMA or, where rows behind
 * `rows` are another's, by its threads. */
template <typename S>
__device__ __forceinline__ void store_sums(const CUtensorMap *map, const heads_view<uint16_t> &to,
                                           float (&d)[S::kD / 2], float by, uint32_t page,
                                           int page_bytes, int group, int index, int row, int head,
                                           int rows, int width, bool packed)
{
  using T = typename S::T;
  const int thread = threadIdx.x % kWarpgroup, lane = threadIdx.x % kWarp, warp = thread / kWarp;
#pragma unroll
  for (int i = 0; i < S::kD / 16; i++) {
    uint32_t pair[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      pair[j] = round_pair<T>(d[8 * i + 2 * j] * by, d[8 * i + 2 * j + 1] * by);
    }
    store_matrices(
        page_chunk(page + i / 4 * page_bytes, 16 * warp + lane % 16, 2 * (i % 4) + lane / 16),
        pair[0], pair[1], pair[2], pair[3]);
  }
  publish_to_copies();
  sync_some(8 + group, kWarpgroup);
  if (packed && rows < kGroupRows) {
    const int chunks = width / 8;
#pragma unroll 1
    for (int e = thread; e < kGroupRows * chunks; e += kWarpgroup) {
      const int r = e / chunks, chunk = e % chunks;
      if (r < rows) {
        uint32_t w[4];
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                     : "r"(page_chunk(page + chunk / 8 * page_bytes, r, chunk % 8))
                     : "memory");
        store_words(to.data + to.at(index, row + r, head) + chunk * 8, w);
      }
    }
  } else if (thread == 0 && rows > 0) {
#pragma unroll
    for (int i = 0; i < S::kPages; i++) {
      store_page(map, i * kPageCols, row, head, index, page + i * page_bytes);
    }
    commit_stores();
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
