/* Grouped linear layers with weights in MXFP4 on CUDA, without tensor cores: the whole entry `any`.
 *
 * Method     That of grouped_linear.cu, whose tiles of 64 x 64 widen the weight as they load it:
 *            forward, and dx, which is the forward's product with W turned. A thread ahead of it
 *            compares the header of the packed weights.
 * Work       A tile of z or dx for a block.
 * Bound      f32 arithmetic.
 */
#include "ops/grouped_linear/expert_bias_sums.cuh"
#include "ops/grouped_linear_mxfp4/mxfp4_problem.cuh"

namespace
{

/* kTurned: the product's columns are those of W, for dx. */
template <bool kTurned>
__global__ void __launch_bounds__(kProductThreads)
    grouped_linear_mxfp4_rows_kernel(const rows_product p, const mxfp4_weight w)
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
    const uint8_t *panels = w.panel(e, 0);
    const auto load_a = [&](int line, int64_t k) {
      const int64_t from = t.source[line];
      return row0 + line >= end || from < 0
                 ? 0.0f
                 : load_any(p.a.data, p.a.dtype, from * p.a.row_step + k);
    };
    const auto load_b = [&](int line, int64_t k) {
      const int64_t n = col0 + line;
      return n >= p.cols ? 0.0f : mxfp4_value(w, panels, kTurned ? k : n, kTurned ? n : k);
    };
    tile_sums sums;
    multiply_tiles(sums, t, steps, true, kTurned, load_a, load_b);
    store_rows(p, t, sums, e, row0, col0);
  }
}

template <bool kTurned> tg_status multiply(const tg_context *ctx, const mxfp4_problem &q)
{
  rows_product p = q.p;
  p.column_tiles = divide_up(p.cols, (int64_t)kTileCols);
  const int64_t tiles = most_tiles(p.tiles.experts, p.tiles.rows) * p.column_tiles;
  const tg_status status = find_mxfp4_tiles(ctx, q.offsets, p.tiles, q.w, q.bad_offset);
  return status ? status
                : launch(ctx, grouped_linear_mxfp4_rows_kernel<kTurned>, grid_of(tiles),
                         kProductThreads, 0, p, q.w);
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

tg_status multiply_mxfp4_rows(const tg_context *ctx, const mxfp4_problem &q)
{
  return multiply<false>(ctx, q);
}

tg_status multiply_mxfp4_turned(const tg_context *ctx, const mxfp4_problem &q)
{
  return multiply<true>(ctx, q);
}

tg_status add_mxfp4_dbias(const tg_context *ctx, const mxfp4_problem &q,
                          const tg_grouped_linear_mxfp4_bwd_args *a)
{
  bias_sums p = {};
  p.tiles = q.p.tiles;
  p.dy = q.p.a;
  return tgi_present(&a->dbias) ? add_bias_sums(ctx, p, &a->dbias, false) : TG_OK;
}

void tell_plain_mxfp4(char *text, size_t bytes)
{
  snprintf(text, bytes, "f32 multiply-adds, tiles of %d x %d, blocks of %d products", kTileRows,
           kTileCols, kSumBlock);
}

} // namespace TGI_CUDA_ENTRY

/* From 8.0 on the files that end in _sm80 have the entry's functions. */
#if TGI_VIRTUAL < 80
extern "C" size_t TGI_WORKSPACE(grouped_linear_mxfp4_fwd)(const tg_context *,
                                                          const tg_grouped_linear_mxfp4_fwd_args *a)
{
  return mxfp4_fwd_bytes(a);
}

extern "C" tg_status TGI_KERNEL(grouped_linear_mxfp4_fwd)(const tg_context *ctx,
                                                          const tg_grouped_linear_mxfp4_fwd_args *a)
{
  const tg_status status = multiply_mxfp4_rows(ctx, mxfp4_fwd_problem(ctx, a));
  return status ? status : activate_mxfp4(ctx, a);
}

extern "C" void TGI_PLAN(grouped_linear_mxfp4_fwd)(const tg_context *,
                                                   const tg_grouped_linear_mxfp4_fwd_args *,
                                                   char *text, size_t bytes)
{
  tell_plain_mxfp4(text, bytes);
}

extern "C" size_t TGI_WORKSPACE(grouped_linear_mxfp4_bwd)(const tg_context *,
                                                          const tg_grouped_linear_mxfp4_bwd_args *a)
{
  return mxfp4_bwd_bytes(a);
}

extern "C" tg_status TGI_KERNEL(grouped_linear_mxfp4_bwd)(const tg_context *ctx,
                                                          const tg_grouped_linear_mxfp4_bwd_args *a)
{
  const mxfp4_problem q = mxfp4_bwd_problem(ctx, a);
  const tg_status status = multiply_mxfp4_turned(ctx, q);
  return status ? status : add_mxfp4_dbias(ctx, q, a);
}

extern "C" void TGI_PLAN(grouped_linear_mxfp4_bwd)(const tg_context *,
                                                   const tg_grouped_linear_mxfp4_bwd_args *,
                                                   char *text, size_t bytes)
{
  tell_plain_mxfp4(text, bytes);
}
#endif
