/**
 * The forward for few rows, as a token's: a block for a panel of 32 rows of an expert's weight and
 * up to eight of the expert's rows of x. Its warps share the groups of columns among them, and
 * their sums are added in the order of the warps. There is no kernel ahead of it: each warp finds
 * the block's expert in `offsets`.
 */
#ifndef TGI_OPS_MXFP4_FEW_SM80_CUH
#define TGI_OPS_MXFP4_FEW_SM80_CUH

#include "ops/grouped_linear_mxfp4/mxfp4_groups_sm80.cuh"
#include "ops/grouped_linear_mxfp4/mxfp4_rows_sm80.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kFewRows = 8, kMostFew = 64; /* rows of a block, of a call */

/** As many blocks along rows as a call can need. */
inline unsigned few_tiles(int64_t experts, int64_t rows)
{
  return (unsigned)(rows / kFewRows + (rows < experts + 1 ? rows : experts + 1));
}

namespace
{

/** Rows [r0, r1) of expert e, or of none; r0 = r1: nothing to do. */
struct few_rows {
  int64_t e;
  int r0, r1;
  bool bad; /* an offset is out of range: the rows are those of the tile's number */
};

/** By whole warps. */
__device__ __forceinline__ few_rows find_few_rows(const int32_t *offsets, int64_t experts, int rows,
                                                  int tile, const fault_site &site, bool record)
{
  const int lane = threadIdx.x % kWarp;
  few_rows found = {experts, 0, 0, false};
  int before = 0; /* tiles of the experts before these 32 */
  bool bad = false;
  for (int64_t e0 = 0; e0 <= experts; e0 += kWarp) {
    const int64_t e = e0 + lane;
    const bool exists = e <= experts;
    const int first = exists ? offsets[e] : rows, end = e < experts ? offsets[e + 1] : rows;
    const int low = exists && e > 0 ? offsets[e - 1] : 0, high = e > 0 ? rows : 0;
    if (exists && (first < low || first > high)) {
      bad = true;
      if (record) {
        record_fault(site, e, first, low, high);
      }
    }
    const int tiles = exists && end > first ? (end - first + kFewRows - 1) / kFewRows : 0;
    const int sum = before + (int)lanes_sum(tiles);
    const unsigned mine = __ballot_sync(0xffffffffu, tile >= sum - tiles && tile < sum);
    if (mine) {
      const int from = __ffs((int)mine) - 1;
      const int r0 = first + (tile - (sum - tiles)) * kFewRows;
      found.e = e0 + from;
      found.r0 = __shfl_sync(0xffffffffu, r0, from);
      found.r1 = __shfl_sync(0xffffffffu, end < r0 + kFewRows ? end : r0 + kFewRows, from);
    }
    before = __shfl_sync(0xffffffffu, sum, kWarp - 1);
  }
  if (__any_sync(0xffffffffu, bad)) {
    const int r0 = tile * kFewRows;
    found = {experts, r0 < rows ? r0 : rows, r0 + kFewRows < rows ? r0 + kFewRows : rows, true};
  }
  return found;
}

template <typename T>
__global__ void __launch_bounds__(kMmaThreads, 3)
    grouped_linear_mxfp4_few_kernel(const rows_product p, const mxfp4_weight w,
                                    const int32_t *offsets, const fault_site bad_offset)
{
  __shared__ float part[kMmaWarps][kFewRows][TGI_PANEL_ROWS + 1];
  __shared__ bool bad_row[kFewRows];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4;
  const bool first = blockIdx.x == 0 && warp == 0;
  const few_rows rows = find_few_rows(offsets, p.tiles.experts, (int)p.tiles.rows, blockIdx.y,
                                      bad_offset, first && blockIdx.y == 0);
  const bool none = rows.e == p.tiles.experts;
  if (rows.r0 == rows.r1) {
    return;
  }
  const bool fits = w.fits(first && blockIdx.y == 0 && lane == 0);
  const bool exists = !none && rows.r0 + g < rows.r1;
  const int64_t from = exists ? p.sources.of(rows.r0 + g, first && q == 0) : 0;
  if (warp == 0 && q == 0) {
    bad_row[g] = from < 0;
  }
  const T *x = static_cast<const T *>(p.a.data) + (from < 0 ? 0 : from * p.a.row_step) + 8 * q;
  const uint8_t *panel = w.panel(none ? 0 : rows.e, blockIdx.x);
  float total[2][1][4] = {};
  const int groups = none ? 0 : (int)w.groups;
  constexpr int kAtOnce = 2; /* groups whose weights are read together */
  for (int k = warp; k < groups; k += kAtOnce * kMmaWarps) {
    group_words words[kAtOnce];
    uint4 rows_of_x[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) {
      const int at = k + i * kMmaWarps;
      words[i] = read_group(panel + (int64_t)at * TGI_MXFP4_GROUP_BYTES, at < groups);
      rows_of_x[i] = make_uint4(0, 0, 0, 0);
      if (exists && at < groups) {
        rows_of_x[i] = *reinterpret_cast<const uint4 *>(x + (int64_t)at * TGI_MXFP4_GROUP);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) {
      const uint32_t b[1][4] = {{rows_of_x[i].x, rows_of_x[i].y, rows_of_x[i].z, rows_of_x[i].w}};
      add_group_products<T, 1>(total, words[i], [&](int, uint32_t(&to)[4]) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
          to[j] = b[0][j];
        }
      });
    }
  }
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      part[warp][2 * q + i % 2][16 * m + g + 8 * (i / 2)] = total[m][0][i];
    }
  }
  __syncthreads();
  const int64_t r = rows.r0 + warp, o = (int64_t)blockIdx.x * TGI_PANEL_ROWS + lane;
  if (r < rows.r1 && o < p.cols) {
    float sum = 0;
#pragma unroll
    for (int v = 0; v < kMmaWarps; v++) {
      sum = sum + part[v][warp][lane];
    }
    if (!none && p.bias.data) {
      sum += load_any(p.bias.data, p.bias.dtype, rows.e * p.bias.row_step + o);
    }
    const bool bad = rows.bad || !fits || bad_row[warp];
    store_any(p.c, p.c_dtype, r * p.c_step + o, bad ? CUDART_NAN_F : sum);
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
