/** Attention backward by mma.sync: a tile's part of dq, added to sums in memory. */
#ifndef TGI_OPS_ATTENTION_BWD_ADD_SM80_CUH
#define TGI_OPS_ATTENTION_BWD_ADD_SM80_CUH

#include "ops/attention/attention_key_place_sm80.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** A warp's gradients of scores to the block's, for add_dq; zeros if it has none. */
template <typename S>
__device__ __forceinline__ void put_gradients(uint32_t tile, int first, bool some,
                                              const uint32_t (&ds)[S::kM][S::kQueries / 4])
{
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int m = 0; m < S::kM; m++) {
#pragma unroll
    for (int i = 0; i < S::kQueries / 4; i++) {
      const int key = first + 16 * m + lane / 4 + 8 * (i % 2);
      store_shared(tile + row_tile<S::kQueries>::at(key, i / 2) + lane % 4 * 4,
                   some ? ds[m][i] : 0);
    }
  }
}

/** Adds the block's part of dq to its sums, those of row `query` of q's axis and the next: each
 * warp has 16 queries and some columns. `left`: queries of the sequence from there on. */
template <typename S>
__device__ __forceinline__ void add_dq(const bwd_tiles_job &job, const key_place &x, uint32_t ds,
                                       uint32_t k, int head, int query, int left)
{
  using T = typename S::T;
  constexpr int kGroups = S::kQueries / 16, kCols = S::kD * kGroups / S::kWarps;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int group = warp % kGroups, col0 = warp / kGroups * kCols;
  const uint32_t from =
      ds + row_tile<S::kQueries>::at(lane % 8 + lane / 16 * 8, 2 * group + lane / 8 % 2);
  float d[kCols / 2];
#pragma unroll
  for (int i = 0; i < S::kRows / 16; i++) {
    uint32_t a[4];
    load_matrices_turned(a, from + (uint32_t)(i * 16 * row_tile<S::kQueries>::kPitch));
#pragma unroll
    for (int n = 0; n < kCols / 16; n++) {
      uint32_t b[4];
      load_matrices_turned(
          b, k + row_tile<S::kD>::at(16 * i + lane % 16, col0 / 8 + 2 * n + lane / 16));
      multiply_small<T>(d + 8 * n, a, b[0], b[1], i > 0);
      multiply_small<T>(d + 8 * n + 4, a, b[2], b[3], i > 0);
    }
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    const int row = 16 * group + lane / 4 + 8 * r;
    float *const to = job.sums + term_at(job.work, x.q_index, query + row, head) * S::kD + col0;
    if (row < left) {
#pragma unroll
      for (int i = 0; i < kCols / 8; i++) {
        const int column = 8 * i + lane % 4 * 2;
        if (col0 + column < job.head_dim) {
          atomicAdd(to + column, d[4 * i + 2 * r]);
          atomicAdd(to + column + 1, d[4 * i + 2 * r + 1]);
        }
      }
    }
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
