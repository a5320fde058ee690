/**
 * Rows of a result that begin anywhere, such as logits of a vocabulary of 50257: TMA and vectors
 * need rows that begin at multiples of 16 bytes.
 *
 * Of 16 bits, a warp leaves 8 of its 16 rows in shared memory, each so that what is a vector of 16
 * bytes in memory is one there, too, but for one element where that lies in the middle of a word.
 * Half a warp then stores a row: every lane a vector, and a single element before the first one or
 * behind the last one. All rows are read before the first is stored. Of f32, a warp stores rows of
 * a page, a word for each lane.
 */
#ifndef TGI_CUDA_GEMM_LOOSE_ROWS_SM90_CUH
#define TGI_CUDA_GEMM_LOOSE_ROWS_SM90_CUH

#include "cuda/half_pair.cuh"
#include "cuda/shared_memory.cuh"
#include "cuda/tma.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kLooseRows = 8;   /* in shared memory at once */
constexpr int kLooseVector = 8; /* 16-bit elements */
constexpr int kLooseRow = 272;  /* bytes from row to row: 128 columns, and a vector's distance */

/** Elements before the first vector that is aligned in memory, of rows that are `step` elements
 * apart. */
struct gemm_loose_heads {
  int first, step;

  __device__ __forceinline__ gemm_loose_heads(const uint16_t *row, int64_t step_of_rows)
      : first((int)(-reinterpret_cast<uintptr_t>(row) % 16 / 2)), step((int)step_of_rows)
  {
  }

  __device__ __forceinline__ int of(int row) const
  {
    return (first - row * step) & (kLooseVector - 1);
  }
};

/** Stores kLooseRows rows of up to 128 columns from a warp's shared memory; half of the warp a row.
 * kWhole: all rows and columns exist. All of what a lane stores is read before. */
template <bool kWhole>
__device__ __forceinline__ void gemm_store_loose_rows(uint32_t memory, uint16_t *to, int64_t step,
                                                      const gemm_loose_heads &heads, int rows,
                                                      int count)
{
  constexpr int kSteps = kLooseRows / 2;
  const int lane = (int)threadIdx.x % 16, second = (int)threadIdx.x % 32 / 16;
  uint32_t vector[kSteps][4], more[kSteps];
  uint16_t single[kSteps];
  int alone[kSteps]; /* the element in no vector that this lane stores; -1: none */
#pragma unroll
  for (int i = 0; i < kSteps; i++) {
    const int r = 2 * i + second, before = heads.of(r);
    if (kWhole) { /* in all as many as a vector has, or, of a row of vectors, those of the last */
      alone[i] = lane >= kLooseVector ? -1 : lane < before ? lane : 128 - kLooseVector + lane;
    } else {
      const int head = before < count ? before : count;
      const int end = head + (count - head) / kLooseVector * kLooseVector;
      const int e = lane < kLooseVector ? lane : end + lane - kLooseVector;
      alone[i] = r < rows && e < (lane < kLooseVector ? head : count) ? e : -1;
    }
    const uint32_t line = memory + r * kLooseRow;
    load_shared(vector[i], line + 16 * (lane + 1));
    more[i] = load_shared(line + 16 * (lane + 2));
    const int at = (alone[i] < 0 ? 0 : alone[i]) + kLooseVector - (before & ~1);
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(single[i]) : "r"(line + 2 * at) : "memory");
  }
#pragma unroll
  for (int i = 0; i < kSteps; i++) {
    const int r = 2 * i + second, before = heads.of(r), e = before + lane * kLooseVector;
    uint16_t *at = to + r * step;
    uint32_t w[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
      w[k] = __funnelshift_r(vector[i][k], k < 3 ? vector[i][k + 1] : more[i], before % 2 * 16);
    }
    if ((kWhole || r < rows) && e + kLooseVector <= (kWhole ? 128 : count)) {
      store_words(at + e, w);
    }
    if (alone[i] >= 0) {
      at[alone[i]] = single[i];
    }
  }
}

/** A warp's 16 rows of 128 columns to C [rows, columns] of 16 bits, from `row` and `column` on.
 * pairs[2 j + i]: the lane's two columns of every 8, of its first and its second row; `memory`:
 * 4096 bytes of shared memory, the warp's own. */
__device__ __forceinline__ void gemm_store_loose(const uint32_t (&pairs)[32], uint32_t memory,
                                                 uint16_t *c, int64_t step, int row, int rows,
                                                 int column, int columns)
{
  const int line = (int)threadIdx.x % 32 / 4, q = (int)threadIdx.x % 4;
  const int count = columns - column < 128 ? columns - column : 128;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int first = row + kLooseRows * half;
    uint16_t *to = c + first * step + column;
    const gemm_loose_heads heads(to, step);
    /* Words lie so that a vector begins in the first word of 16 bytes. */
    const int shift = 2 * (heads.of(line) & ~1);
    const uint32_t mine = memory + line * kLooseRow + 16 + 4 * q - shift;
    __syncwarp(); /* what was there has been read */
#pragma unroll
    for (int j = 0; j < 16; j++) {
      store_shared(mine + 16 * j, pairs[2 * j + half]);
    }
    __syncwarp();
    if (first + kLooseRows <= rows && count == 128) {
      gemm_store_loose_rows<true>(memory, to, step, heads, rows - first, count);
    } else {
      gemm_store_loose_rows<false>(memory, to, step, heads, rows - first, count);
    }
  }
}

/** A warp's 16 rows of a page of f32, from `page_row` on, to C [rows, columns], from `row` and
 * `column` on. */
__device__ __forceinline__ void gemm_store_loose_page(float *c, int64_t step, int row, int rows,
                                                      int column, int columns, uint32_t page,
                                                      int page_row)
{
  const int lane = (int)threadIdx.x % 32;
  float *to = c + row * step + column + lane;
#pragma unroll
  for (int i = 0; i < 16; i += 4) {
    uint32_t word[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
      word[k] = load_shared(page_chunk(page, page_row + i + k, lane / 4) + lane % 4 * 4);
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
      if (row + i + k < rows && column + lane < columns) {
        to[(i + k) * step] = __uint_as_float(word[k]);
      }
    }
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
