/**
 * Rows of an operand on their way to tensor cores: 64 rows of an expert, 32 columns at a time,
 * through a ring of stages in shared memory.
 *
 * A thread copies 16 bytes of a stage. Of a row and a stage, the four lanes q of a warp read 16
 * bytes each, columns 8 q to 8 q + 7: the order of k within a product is free as long as both
 * operands have the same.
 */
#ifndef TGI_OPS_MXFP4_ROWS_SM80_CUH
#define TGI_OPS_MXFP4_ROWS_SM80_CUH

#include "cuda/mma.cuh"
#include "ops/grouped_linear_mxfp4/mxfp4_problem.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kMmaWarps = 8, kMmaThreads = kMmaWarps * kWarp;
constexpr int kRowTiles = kTileRows / 8; /* of a product's eight columns */
constexpr int kRowStages = 4, kRowBytes = 64, kStageBytes = kTileRows * kRowBytes;
static_assert(kStageBytes == 16 * kMmaThreads, "a thread copies 16 bytes");

/** A tile of an op's rows. */
struct row_tile {
  int e, row0, end, column_tile;
};

struct row_stages {
  __align__(16) uint8_t bytes[kRowStages][kStageBytes];
  int64_t source[kTileRows]; /* row of the operand; -1: there is none, or its slot is bad */
  row_tile tile;
};

/** Of rows and columns. */
__device__ __forceinline__ int64_t tiles_of(const rows_product &p)
{
  return p.tiles.first_tile[p.tiles.experts + 1] * p.column_tiles;
}

/** Ahead of a tile's stages: which rows it has, and where they come from. By all threads, who may
 * still read what is there of the tile before. */
__device__ __forceinline__ void begin_tile(row_stages &s, const rows_product &p, int64_t tile)
{
  __syncthreads();
  if (threadIdx.x == 0) {
    const int64_t row = tile / p.column_tiles;
    const int e = (int)expert_of_tile(p.tiles, row);
    s.tile.e = e;
    s.tile.row0 = p.tiles.bound[e] + (int)(row - p.tiles.first_tile[e]) * kTileRows;
    s.tile.end = p.tiles.bound[e + 1];
    s.tile.column_tile = (int)(tile - row * p.column_tiles);
  }
  __syncthreads();
  if (threadIdx.x < kTileRows) {
    const int row0 = s.tile.row0, i = threadIdx.x; /* row0 + 63 may be above 2^31 - 1 */
    const bool exists = i < s.tile.end - row0 && s.tile.e < p.tiles.experts;
    s.source[i] = exists ? p.sources.of(row0 + i, s.tile.column_tile == 0) : -1;
  }
  __syncthreads();
}

/** Runs step(k, address) for each k of `steps` stages, in order; the address is that of the stage
 * in shared memory. A stage is a group of columns of p.a. */
template <typename Step>
__device__ __forceinline__ void for_stages(row_stages &s, const rows_product &p, int steps,
                                           const Step &step)
{
  const int64_t from = s.source[threadIdx.x / 4];
  const char *chunk = static_cast<const char *>(p.a.data) + 16 * (threadIdx.x % 4);
  chunk += from < 0 ? 0 : from * p.a.row_step * 2;
  const uint32_t first = shared_address(s.bytes[0]), mine = first + 16 * threadIdx.x;
#pragma unroll
  for (int i = 0; i < kRowStages - 1; i++) {
    if (i < steps) {
      copy_chunk(mine + i * kStageBytes, chunk + i * kRowBytes, from >= 0);
    }
    commit_copies();
  }
  for (int k = 0; k < steps; k++) {
    wait_for_copies<kRowStages - 2>();
    __syncthreads(); /* stage k is there, and all have read stage k - 1 */
    const int next = k + kRowStages - 1;
    if (next < steps) {
      copy_chunk(mine + next % kRowStages * kStageBytes, chunk + (int64_t)next * kRowBytes,
                 from >= 0);
    }
    commit_copies();
    step(k, first + k % kRowStages * kStageBytes);
  }
  wait_for_copies<0>();
}

/** Element (row, column) of a tile's result; sum is without bias. */
__device__ __forceinline__ void store_element(const row_stages &s, const rows_product &p, int row,
                                              int64_t column, float sum)
{
  const row_tile t = s.tile;
  if (row >= t.end - t.row0 || column >= p.cols) {
    return;
  }
  const int r = t.row0 + row;
  const bool none = t.e == p.tiles.experts;
  float v = none ? 0.0f : sum;
  if (!none && p.bias.data) {
    v += load_any(p.bias.data, p.bias.dtype, t.e * p.bias.row_step + column);
  }
  const bool bad = *p.tiles.bad != 0 || (!none && s.source[row] < 0);
  store_any(p.c, p.c_dtype, (int64_t)r * p.c_step + column, bad ? CUDART_NAN_F : v);
}

} // namespace TGI_CUDA_ENTRY

#endif
