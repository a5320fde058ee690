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

/** Elements of a row before its first vector that is aligned in memory. */
__device__ __forceinline__ int gemm_loose_head(const uint16_t *row)
{
  return (int)(-reinterpret_cast<uintptr_t>(row) % 16 / 2);
}

/** What half a warp stores of a row: a vector for each lane, which is `odd` by an element in shared
 * memory, and the elements outside of vectors, one for each lane. */
struct gemm_loose_part {
  uint32_t vector[4], more;
  uint16_t single;

  /** From a row of `count` elements at `line` with `before` ones before its first vector. */
  __device__ __forceinline__ void read(uint32_t line, int lane, int alone)
  {
    load_shared(vector, line + 16 * (lane + 1));
    more = load_shared(line + 16 * (lane + 2));
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(single) : "r"(line + 2 * alone) : "memory");
  }
};

/** A warp's 16 rows of 128 columns to C [rows, columns] of 16 bits, from `row` and `column` on.
 * pairs[2 j + i]: the lane's two columns of every 8, of its first and its second row; `memory`:
 * 4096 bytes of shared memory, the warp's own. */
__device__ __forceinline__ void gemm_store_loose(const uint32_t (&pairs)[32], uint32_t memory,
                                                 uint16_t *c, int64_t step, int row, int rows,
                                                 int column, int columns)
{
  constexpr int kSteps = kLooseRows / 2; /* two rows at once, one for each half of the warp */
  const int lane = (int)threadIdx.x % 16, second = (int)threadIdx.x % 32 / 16;
  const int line = (int)threadIdx.x % 32 / 4, q = (int)threadIdx.x % 4;
  const int count = columns - column < 128 ? columns - column : 128;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int first = row + kLooseRows * half;
    uint16_t *to = c + first * step + column;
    /* Words lie so that a vector begins in the first word of 16 bytes. */
    const uint32_t mine =
        memory + line * kLooseRow + 16 + 4 * q - 2 * (gemm_loose_head(to + line * step) & ~1);
    __syncwarp(); /* what was there has been read */
#pragma unroll
    for (int j = 0; j < 16; j++) {
      store_shared(mine + 16 * j, pairs[2 * j + half]);
    }
    __syncwarp();
    gemm_loose_part part[kSteps];
    int alone[kSteps];
#pragma unroll
    for (int i = 0; i < kSteps; i++) {
      const int r = 2 * i + second, before = gemm_loose_head(to + r * step);
      const int head = before < count ? before : count;
      const int end = head + (count - head) / kLooseVector * kLooseVector;
      const int e = lane < kLooseVector ? lane : end + lane - kLooseVector;
      const bool exists = first + r < rows && e < (lane < kLooseVector ? head : count);
      const uint32_t from = memory + r * kLooseRow;
      alone[i] = exists ? e : -1;
      part[i].read(from, lane, (exists ? e : 0) + 8 - (before & ~1));
    }
#pragma unroll
    for (int i = 0; i < kSteps; i++) {
      const int r = 2 * i + second;
      uint16_t *at = to + r * step;
      const int before = gemm_loose_head(at), e = before + lane * kLooseVector;
      const int bits = before % 2 * 16;
      const uint32_t *v = part[i].vector;
      uint32_t w[4];
#pragma unroll
      for (int k = 0; k < 4; k++) {
        w[k] = __funnelshift_r(v[k], k < 3 ? v[k + 1] : part[i].more, bits);
      }
      if (first + r < rows && e + kLooseVector <= count) {
        store_words(at + e, w);
      }
      if (alone[i] >= 0) {
        at[alone[i]] = part[i].single;
      }
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
