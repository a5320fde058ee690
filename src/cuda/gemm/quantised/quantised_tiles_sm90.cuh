/**
 * Rows x in the order in which wgmma reads them beside W's fragments.
 *
 * A lane's fragments of W in a product of 16 columns have columns 8 q + 4 j + 2 h and the next of a
 * step of 32 (j: which of the step's two products, h: which half of its depth). wgmma reads x in
 * shared memory, in rows of 16 bytes that are eight columns of one half. So a kernel of its own
 * brings x to that order, chunk by chunk, just as a stage has it, and one bulk copy fetches a tile.
 *
 *   tile of kRows rows and a chunk: [4 steps][2 products j][2 halves h][kRows rows][4 q][2 columns]
 */
#ifndef TGI_CUDA_QUANTISED_TILES_SM90_CUH
#define TGI_CUDA_QUANTISED_TILES_SM90_CUH

#include "cuda/gemm/quantised/quantised_sm80.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** x as tiles of kRows rows, in the order of their reading; rows and columns that do not exist are
 * zeros. */
struct tiles_of_x {
  const char *x;
  uint4 *to;
  int64_t rows, in, x_step; /* x_step: bytes */
  int64_t chunks, strips;
};

constexpr int kTilesThreads = 256;

namespace
{

/** A thread moves a row's 32 columns of a step. */
template <int kRows> __global__ void __launch_bounds__(kTilesThreads) rows_to_tiles(tiles_of_x t)
{
  let_next_begin(); /* it reads the weight, and waits for this kernel */
  await_kernel_before();
  const int64_t i = (int64_t)blockIdx.x * kTilesThreads + threadIdx.x;
  const int step = (int)(i % kChunkSteps), row = (int)(i / kChunkSteps % kRows);
  const int64_t tile = i / (kChunkSteps * kRows), chunk = tile % t.chunks;
  const int64_t from_row = tile / t.chunks * kRows + row, column = chunk * kChunk + step * kStep;
  if (tile >= t.chunks * t.strips) {
    return;
  }
  uint4 v[4];
#pragma unroll
  for (int q = 0; q < 4; q++) {
    v[q] = from_row < t.rows && column + 8 * q < t.in
               ? *reinterpret_cast<const uint4 *>(t.x + from_row * t.x_step + (column + 8 * q) * 2)
               : make_uint4(0, 0, 0, 0);
  }
  uint4 *to = t.to + tile * (kRows * kChunkSteps * 4) + step * 4 * kRows + row;
  to[0] = make_uint4(v[0].x, v[1].x, v[2].x, v[3].x);
  to[kRows] = make_uint4(v[0].y, v[1].y, v[2].y, v[3].y);
  to[2 * kRows] = make_uint4(v[0].z, v[1].z, v[2].z, v[3].z);
  to[3 * kRows] = make_uint4(v[0].w, v[1].w, v[2].w, v[3].w);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
