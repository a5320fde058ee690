/**
 * Rows of a result that begin anywhere, such as logits of a vocabulary of 50257, from a page of
 * shared memory: a warp stores one row of the page after the other, 128 bytes at a time, in words
 * that are aligned in memory. TMA and vectors need rows that begin at multiples of 16 bytes.
 *
 * Of 16 bits, a row may begin in the middle of a word. Then each word consists of the halves of two
 * words of the page, and the row's first element is stored apart; likewise a last one.
 */
#ifndef TGI_CUDA_GEMM_LOOSE_ROWS_SM90_CUH
#define TGI_CUDA_GEMM_LOOSE_ROWS_SM90_CUH

#include "cuda/shared_memory.cuh"
#include "cuda/tma.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kLooseRows = 16; /* of a warp */

/** Stores `word`, the lane's of a row of 32, of which `count` elements of C exist. By a warp. */
template <typename C>
__device__ __forceinline__ void gemm_store_loose_row(C *to, uint32_t word, int count)
{
  const int lane = (int)threadIdx.x % 32;
  if constexpr (sizeof(C) == 4) {
    if (lane < count) {
      to[lane] = __uint_as_float(word);
    }
  } else {
    uint16_t *halves = reinterpret_cast<uint16_t *>(to);
    const bool odd = reinterpret_cast<uintptr_t>(to) % 4 != 0; /* the same in all lanes */
    const uint32_t next = __shfl_down_sync(0xffffffffu, word, 1);
    const uint32_t pair = odd ? __funnelshift_r(word, next, 16) : word;
    const int first = 2 * lane + odd;
    if (first + 1 < count && first < kPageCols - 1) {
      *reinterpret_cast<uint32_t *>(halves + first) = pair;
    } else if (first < count) {
      halves[first] = (uint16_t)pair;
    }
    if (odd && lane == 0 && count > 0) {
      halves[0] = (uint16_t)word;
    }
  }
}

/** Rows `row` .. + 15 of C, which has `rows`, columns from `column` on, of `columns`: from rows
 * `page_row` .. of the page. By a warp. */
template <typename C>
__device__ __forceinline__ void gemm_store_loose_rows(C *c, int64_t step, int row, int rows,
                                                      int column, int columns, uint32_t page,
                                                      int page_row)
{
  const int lane = (int)threadIdx.x % 32, count = columns - column;
  const int exist = rows - row < kLooseRows ? rows - row : kLooseRows;
  C *to = c + row * step + column;
#pragma unroll 4
  for (int i = 0; i < exist; i++) {
    const uint32_t word = load_shared(page_chunk(page, page_row + i, lane / 4) + lane % 4 * 4);
    gemm_store_loose_row(to + i * step, word, count);
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
