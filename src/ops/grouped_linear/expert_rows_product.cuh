/** The product of rows with their experts' weights on CUDA: y of the forward and dx of the backward
 * are one kernel. */
#ifndef TGI_OPS_EXPERT_ROWS_PRODUCT_CUH
#define TGI_OPS_EXPERT_ROWS_PRODUCT_CUH

#include "ops/grouped_linear/expert_rows.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

__global__ void __launch_bounds__(kProductThreads) grouped_linear_rows_kernel(const rows_product p)
{
  __shared__ __align__(16) product_tiles t;
  const int64_t tiles = p.tiles.first_tile[p.tiles.experts + 1] * p.column_tiles;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t row_tile = tile / p.column_tiles, column_tile = tile - row_tile * p.column_tiles;
    const int64_t e = expert_of_tile(p.tiles, row_tile), col0 = column_tile * kTileCols;
    const int64_t row0 = p.tiles.bound[e] + (row_tile - p.tiles.first_tile[e]) * kTileRows;
    const int64_t end = p.tiles.bound[e + 1], steps = e == p.tiles.experts ? 0 : p.steps;
    __syncthreads(); /* the tile before has been stored */
    for (int i = threadIdx.x; i < kTileRows; i += kProductThreads) {
      const bool exists = e < p.tiles.experts && row0 + i < end;
      t.source[i] = exists ? p.sources.of(row0 + i, column_tile == 0) : 0;
    }
    const int64_t b0 = e * p.b.expert_step;
    const auto load_a = [&](int line, int64_t k) {
      const int64_t from = t.source[line];
      return row0 + line >= end || from < 0
                 ? 0.0f
                 : load_any(p.a.data, p.a.dtype, from * p.a.row_step + k);
    };
    const auto load_b = [&](int line, int64_t k) {
      const int64_t n = col0 + line;
      const int64_t at = p.b_along_k ? n * p.b.row_step + k : k * p.b.row_step + n;
      return n < p.cols ? load_any(p.b.data, p.b.dtype, b0 + at) : 0.0f;
    };
    tile_sums sums;
    multiply_tiles(sums, t, steps, true, p.b_along_k, load_a, load_b);
    store_rows(p, t, sums, e, row0, col0);
  }
}

} // namespace

inline tg_status multiply_rows(const tg_context *ctx, rows_product p)
{
  p.column_tiles = divide_up(p.cols, (int64_t)kTileCols);
  const int64_t tiles = most_tiles(p.tiles.experts, p.tiles.rows) * p.column_tiles;
  return launch(ctx, grouped_linear_rows_kernel, grid_of(tiles), kProductThreads, 0, p);
}

} // namespace TGI_CUDA_ENTRY

#endif
