/**
 * Rows of a result that begin anywhere, such as logits of a vocabulary of 50257: TMA and vectors
 * need rows that begin at multiples of 16 bytes.
 *
 * Of 16 bits, a warp leaves 8 of its 16 rows in shared memory and stores one after the other: every
 * lane the 16 bytes of a vector that is aligned in memory, from two chunks of the row in shared
 * memory; then the few elements before the first vector and behind the last one. Of f32, it stores
 * rows of a page, a word for each lane.
 */
#ifndef TGI_CUDA_GEMM_LOOSE_ROWS_SM90_CUH
#define TGI_CUDA_GEMM_LOOSE_ROWS_SM90_CUH

#include "cuda/half_pair.cuh"
#include "cuda/shared_memory.cuh"
#include "cuda/tma.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kLooseRows = 8, kLooseRow = 512; /* bytes, of up to 256 columns */
constexpr int kLooseVector = 8;                /* 16-bit elements */

/** Where 16 bytes of a row lie: rows take turns, so that 8 of them are in different banks. */
__device__ __forceinline__ uint32_t gemm_loose_chunk(uint32_t rows, int row, int chunk)
{
  return rows + (uint32_t)(row * kLooseRow + ((chunk ^ row) << 4));
}

/** 16 bytes from 16-bit element `from` of 0 .. 7 of two chunks on. */
__device__ __forceinline__ void gemm_shift_chunk(uint32_t (&to)[4], const uint32_t (&first)[4],
                                                 const uint32_t (&second)[4], int from)
{
  uint32_t w[7];
#pragma unroll
  for (int i = 0; i < 7; i++) {
    w[i] = i < 4 ? first[i] : second[i - 4];
  }
#pragma unroll
  for (int i = 0; i < 7; i++) {
    const uint32_t far = i + 2 < 7 ? w[i + 2] : second[i - 2 < 4 ? i - 2 : 3];
    w[i] = from & 4 ? far : w[i];
  }
#pragma unroll
  for (int i = 0; i < 5; i++) {
    w[i] = from & 2 ? w[i + 1] : w[i];
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    to[i] = __funnelshift_r(w[i], w[i + 1], from & 1 ? 16 : 0);
  }
}

/** Stores a row of `count` elements, of `chunks` in shared memory. By a warp. */
__device__ __forceinline__ void gemm_store_loose_row(uint16_t *to, uint32_t rows, int row,
                                                     int chunks, int count)
{
  const int lane = (int)threadIdx.x % 32, own = lane < chunks ? lane : chunks - 1;
  const int before = (int)(-reinterpret_cast<uintptr_t>(to) % 16 / 2); /* the first vector */
  uint32_t first[4], second[4], w[4];
  load_shared(first, gemm_loose_chunk(rows, row, own));
  load_shared(second, gemm_loose_chunk(rows, row, own + 1 < chunks ? own + 1 : own));
  const int head = before < count ? before : count;
  const int end = head + (count - head) / kLooseVector * kLooseVector;
  const int alone = lane < kLooseVector ? lane : end + lane - kLooseVector; /* in no vector */
  const bool exists = lane < kLooseVector ? alone < head : lane < 2 * kLooseVector && alone < count;
  const int from = exists ? alone : 0;
  const uint32_t word =
      load_shared(gemm_loose_chunk(rows, row, from / kLooseVector) + from % kLooseVector / 2 * 4);
  gemm_shift_chunk(w, first, second, before);
  const int at = before + lane * kLooseVector;
  if (at + kLooseVector <= count) {
    store_words(to + at, w);
  }
  if (exists) {
    to[alone] = (uint16_t)(word >> alone % 2 * 16);
  }
}

/** A warp's 16 rows of kN columns to C [rows, columns] of 16 bits, from `row` and `column` on.
 * pairs[2 j + i]: the lane's two columns of every 8, of its first and its second row; `memory`:
 * 4096 bytes of shared memory, the warp's own. */
template <int kN>
__device__ __forceinline__ void gemm_store_loose(const uint32_t (&pairs)[kN / 4], uint32_t memory,
                                                 uint16_t *c, int64_t step, int row, int rows,
                                                 int column, int columns)
{
  const int line = (int)threadIdx.x % 32 / 4, q = (int)threadIdx.x % 4;
  const int count = columns - column < kN ? columns - column : kN;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    __syncwarp(); /* what was there has been stored */
#pragma unroll
    for (int j = 0; j < kN / 8; j++) {
      store_shared(gemm_loose_chunk(memory, line, j) + 4 * q, pairs[2 * j + half]);
    }
    __syncwarp();
    const int first = row + kLooseRows * half, left = rows - first;
    uint16_t *to = c + first * step + column;
#pragma unroll 1
    for (int i = 0; i < kLooseRows && i < left; i++) {
      gemm_store_loose_row(to + i * step, memory, i, kN / kLooseVector, count);
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
