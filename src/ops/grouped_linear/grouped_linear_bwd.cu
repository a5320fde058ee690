/* Grouped linear layers on CUDA, backward.
 *
 * Method     dx: the forward's kernel over rows of dy. dweight: a block multiplies tiles of 64 x 64
 *            of an expert's dy^T x, over all of its rows, gathering rows of x. dbias: a block adds
 *            up 32 columns of an expert; warp i of eight adds rows i, i + 8, .. of each group of 64
 *            rows, then the groups' sums; in the end the eight totals are added in order. No
 *            atomics. From compute capability 8.0 on, dx and dweight of 16-bit operands of one
 *            dtype are made by tensor cores (sm80/grouped_rows_sm80.cu and grouped_steps_sm80.cu).
 * Work       A tile of dx or dweight, or 32 columns of dbias, for a block; an expert without rows
 *            costs a look at its bounds.
 * Bound      f32 arithmetic, tensor cores; dbias: memory.
 */
#include "ops/grouped_linear/expert_bias_sums.cuh"
#include "ops/grouped_linear/expert_rows_product.cuh"
#include "ops/grouped_linear/grouped_sites.cuh"
#if TGI_VIRTUAL >= 80
#include "ops/grouped_linear/sm80/expert_products_sm80.cuh"
#endif

namespace
{

/* dweight[e][m, n] += sum_r a[r, m] * b[r, n], where one of the two is dy and the other x. */
struct weight_product {
  expert_tiles tiles;
  row_sources sources;
  expert_matrix a, b;
  bool a_is_x;
  gradient to;
  int64_t expert_step, row_step, rows, cols, row_tiles, column_tiles;
};

__device__ __forceinline__ void add_tile(const weight_product &p, const tile_sums &sums, int64_t e,
                                         int64_t row0, int64_t col0)
{
  const bool bad = *p.tiles.bad != 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int64_t m = row0 + threadIdx.x / 16 * 4 + i;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int64_t n = col0 + threadIdx.x % 16 * 4 + j;
      if (m < p.rows && n < p.cols) {
        p.to.add(e * p.expert_step + m * p.row_step + n, bad ? CUDART_NAN_F : sums.total[i][j]);
      }
    }
  }
}

__global__ void __launch_bounds__(kProductThreads)
    grouped_linear_bwd_weight_kernel(const weight_product p)
{
  __shared__ __align__(16) product_tiles t;
  const int64_t each = p.row_tiles * p.column_tiles, tiles = p.tiles.experts * each;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t e = tile / each, rest = tile - e * each, row_tile = rest / p.column_tiles;
    const int64_t row0 = row_tile * kTileRows,
                  col0 = (rest - row_tile * p.column_tiles) * kTileCols;
    const int64_t first = p.tiles.bound[e], count = p.tiles.bound[e + 1] - first;
    if (count == 0 && !p.to.overwrite && *p.tiles.bad == 0) {
      continue;
    }
    const auto load_row = [&](const expert_matrix &m, bool is_x, int64_t k, int64_t column,
                              int64_t columns) {
      const int64_t r = first + k, from = is_x ? p.sources.of(r, rest == 0 && column == 0) : r;
      return column >= columns ? 0.0f
             : from < 0        ? CUDART_NAN_F
                               : load_any(m.data, m.dtype, from * m.row_step + column);
    };
    const auto load_a = [&](int line, int64_t k) {
      return load_row(p.a, p.a_is_x, k, row0 + line, p.rows);
    };
    const auto load_b = [&](int line, int64_t k) {
      return load_row(p.b, !p.a_is_x, k, col0 + line, p.cols);
    };
    tile_sums sums;
    multiply_tiles(sums, t, count, false, false, load_a, load_b);
    add_tile(p, sums, e, row0, col0);
  }
}

#if TGI_VIRTUAL >= 80
bool makes_dx(const tg_grouped_linear_bwd_args *a)
{
  return multiplies_experts(&a->dy, &a->weight);
}

bool makes_dweight(const tg_grouped_linear_bwd_args *a)
{
  return multiplies_experts(&a->x, &a->dy);
}

tg_status make_dx_fast(const tg_context *ctx, const tg_grouped_linear_bwd_args *a,
                       const expert_tiles &tiles)
{
  expert_rows_call c = {};
  c.tiles = tiles;
  c.a = &a->dy;
  c.weight = &a->weight;
  c.z = &a->dx;
  c.across = !a->in_first;
  return multiply_expert_rows(ctx, c);
}

tg_status add_dweight_fast(const tg_context *ctx, const tg_grouped_linear_bwd_args *a,
                           const expert_tiles &tiles, fault_site bad_slot)
{
  expert_steps_call c = {};
  c.tiles = tiles;
  c.sources = sources_of(a, bad_slot);
  c.a = a->in_first ? &a->x : &a->dy;
  c.b = a->in_first ? &a->dy : &a->x;
  c.a_is_x = a->in_first;
  c.c = &a->dweight;
  c.overwrite = a->overwrite;
  return multiply_expert_steps(ctx, c);
}
#endif

/* Of the rows that dx's kernel multiplies at once; other kernels know no tiles. */
expert_tiles tiles_of(const tg_context *ctx, const tg_grouped_linear_bwd_args *a)
{
  int rows = kTileRows;
#if TGI_VIRTUAL >= 80
  if (makes_dx(a)) {
    rows = expert_tile_rows(ctx, a->dy.shape[0], a->weight.shape[0]);
  }
#endif
  return expert_tiles_in(a->workspace, a->weight.shape[0], a->dy.shape[0], rows);
}

tg_status make_dx(const tg_context *ctx, const tg_grouped_linear_bwd_args *a,
                  const expert_tiles &tiles)
{
#if TGI_VIRTUAL >= 80
  if (makes_dx(a)) {
    return make_dx_fast(ctx, a, tiles);
  }
#endif
  rows_product p = {};
  p.tiles = tiles;
  p.a = matrix_of_rank(&a->dy);
  p.b = matrix_of_rank(&a->weight);
  p.b_along_k = a->in_first;
  p.c = a->dx.data;
  p.c_dtype = a->dx.dtype;
  p.c_step = tgi_stride(&a->dx, 0);
  p.cols = a->x.shape[1];
  p.steps = a->dy.shape[1];
  return multiply_rows(ctx, p);
}

tg_status add_dweight(const tg_context *ctx, const tg_grouped_linear_bwd_args *a,
                      const expert_tiles &tiles, fault_site bad_slot)
{
#if TGI_VIRTUAL >= 80
  if (makes_dweight(a)) {
    return add_dweight_fast(ctx, a, tiles, bad_slot);
  }
#endif
  weight_product p = {};
  p.tiles = tiles;
  p.sources = sources_of(a, bad_slot);
  p.a = matrix_of_rank(a->in_first ? &a->x : &a->dy);
  p.b = matrix_of_rank(a->in_first ? &a->dy : &a->x);
  p.a_is_x = a->in_first;
  p.to = gradient_of(&a->dweight, a->overwrite);
  p.expert_step = tgi_stride(&a->dweight, 0);
  p.row_step = tgi_stride(&a->dweight, 1);
  p.rows = a->dweight.shape[1];
  p.cols = a->dweight.shape[2];
  p.row_tiles = divide_up(p.rows, (int64_t)kTileRows);
  p.column_tiles = divide_up(p.cols, (int64_t)kTileCols);
  const dim3 grid = grid_of(p.tiles.experts * p.row_tiles * p.column_tiles);
  return launch(ctx, grouped_linear_bwd_weight_kernel, grid, kProductThreads, 0, p);
}

tg_status add_dbias(const tg_context *ctx, const tg_grouped_linear_bwd_args *a,
                    const expert_tiles &tiles)
{
  bias_sums p = {};
  p.tiles = tiles;
  p.dy = matrix_of_rank(&a->dy);
  return add_bias_sums(ctx, p, &a->dbias, a->overwrite);
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

tg_status run_grouped_linear_bwd(const tg_context *ctx, const tg_grouped_linear_bwd_args *a,
                                 grouped_sites sites)
{
  const expert_tiles tiles = tiles_of(ctx, a);
  tg_status status = find_tiles(ctx, &a->offsets, tiles, sites.offsets);
  if (status == TG_OK && tgi_present(&a->dx)) {
    status = make_dx(ctx, a, tiles);
  }
  if (status == TG_OK && tgi_present(&a->dweight)) {
    status = add_dweight(ctx, a, tiles, sites.slot);
  }
  if (status == TG_OK && tgi_present(&a->dbias)) {
    status = add_dbias(ctx, a, tiles);
  }
  return status;
}

} // namespace TGI_CUDA_ENTRY

extern "C" size_t TGI_WORKSPACE(grouped_linear_bwd)(const tg_context *,
                                                    const tg_grouped_linear_bwd_args *a)
{
  return expert_tiles_bytes(a->weight.shape[0]);
}

extern "C" tg_status TGI_KERNEL(grouped_linear_bwd)(const tg_context *ctx,
                                                    const tg_grouped_linear_bwd_args *a)
{
  return run_grouped_linear_bwd(
      ctx, a,
      {FAULT_SITE(ctx, grouped_linear_bwd, offsets), FAULT_SITE(ctx, grouped_linear_bwd, slot)});
}

extern "C" void TGI_PLAN(grouped_linear_bwd)(const tg_context *ctx,
                                             const tg_grouped_linear_bwd_args *a, char *text,
                                             size_t bytes)
{
#if TGI_VIRTUAL >= 80
  if (tgi_present(&a->dx) && makes_dx(a)) {
    tell_expert_rows(ctx, a->dy.shape[0], a->weight.shape[0], text, bytes);
    return;
  }
  if (tgi_present(&a->dweight) && makes_dweight(a)) {
    tell_expert_steps(ctx, a->weight.shape[1], a->weight.shape[2], text, bytes);
    return;
  }
#endif
  (void)ctx;
  (void)a;
  snprintf(text, bytes, "f32 multiply-adds, tiles of %d x %d, blocks of %d products", kTileRows,
           kTileCols, kSumBlock);
}
