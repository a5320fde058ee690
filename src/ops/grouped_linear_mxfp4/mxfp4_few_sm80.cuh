/**
 * The forward for few rows, as a token's: a block for panels of 32 rows of an expert's weight and
 * up to eight of the expert's rows of x. Its warps share a panel's groups of columns among them,
 * and their sums are added in the order of the warps. There is no kernel ahead of it: one warp
 * finds the block's expert in `offsets`. Groups are read two ahead, into registers.
 */
#ifndef TGI_OPS_MXFP4_FEW_SM80_CUH
#define TGI_OPS_MXFP4_FEW_SM80_CUH

#include "ops/grouped_linear_mxfp4/mxfp4_few_words_sm80.cuh"
#include "ops/grouped_linear_mxfp4/mxfp4_rows_sm80.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kFewRows = 8, kMostFew = 64; /* rows of a block, of a call */
constexpr int kFewBlocks = 4;              /* on a multiprocessor */
constexpr int kFewWaves =
    6; /* of blocks that are left at the least, where one has several panels */

/** As many blocks along rows as a call can need. */
inline unsigned few_tiles(int64_t experts, int64_t rows)
{
  return (unsigned)(rows / kFewRows + (rows < experts + 1 ? rows : experts + 1));
}

/** Blocks along panels and rows. A block has several panels, for which it finds its rows once, if
 * there are blocks enough. */
inline dim3 few_grid(const tg_context *ctx, int64_t panels, int64_t experts, int64_t rows)
{
  const unsigned tiles = few_tiles(experts, rows);
  const int64_t wave = (int64_t)ctx->device->multiprocessors * kFewBlocks;
  const int64_t wanted = divide_up(kFewWaves * wave, (int64_t)tiles);
  const int64_t panels_each = wanted < panels ? panels / wanted : 1;
  return dim3((unsigned)divide_up(panels, panels_each), tiles);
}

namespace
{

/** Rows [r0, r1) of expert e, or of none; r0 = r1: nothing to do. */
struct few_rows {
  int64_t e;
  int r0, r1;
  bool bad; /* an offset is out of range: the rows are those of the tile's number */
};

/** By a whole warp. The bounds of all experts are checked, those of none apart: GPT-OSS's 32
 * experts are one turn. */
__device__ __forceinline__ few_rows find_few_rows(const int32_t *offsets, int64_t experts, int rows,
                                                  int tile, const fault_site &site, bool record)
{
  const int lane = threadIdx.x % kWarp;
  const int last = offsets[experts], last_low = offsets[experts - 1];
  few_rows found = {experts, 0, 0, false};
  int before = 0; /* tiles of the experts before these 32 */
  bool bad = last < last_low || last > rows;
  if (bad && record && lane == 0) {
    record_fault(site, experts, last, last_low, rows);
  }
  for (int64_t e0 = 0; e0 < experts; e0 += kWarp) {
    const int64_t e = e0 + lane;
    const bool exists = e < experts;
    const int first = exists ? offsets[e] : 0, end = exists ? offsets[e + 1] : 0;
    const int low = exists && e > 0 ? offsets[e - 1] : 0, high = e > 0 ? rows : 0;
    if (exists && (first < low || first > high)) {
      bad = true;
      if (record) {
        record_fault(site, e, first, low, high);
      }
    }
    const int tiles = end > first ? (end - first + kFewRows - 1) / kFewRows : 0;
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
  } else if (tile >= before) {
    const int r0 = last + (tile - before) * kFewRows;
    found.r0 = r0 < rows ? r0 : rows;
    found.r1 = r0 + kFewRows < rows ? r0 + kFewRows : rows;
  }
  return found;
}

/** What a block's warps share: its rows, where those come from, and the sums of two panels. */
struct few_shared {
  float part[2][kMmaWarps][kFewRows][TGI_PANEL_ROWS + 1];
  __align__(8) uint32_t header[TGI_PACKED_HEADER_BYTES / 4];
  int64_t source[kFewRows]; /* row of x; -1: there is none, or its slot is bad */
  few_rows rows;
};

/** Rows and header, by two warps. */
__device__ __forceinline__ void find_few(few_shared &s, const rows_product &p,
                                         const mxfp4_weight &w, const int32_t *offsets,
                                         const fault_site &bad_offset)
{
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  if (warp == 0) {
    const few_rows rows = find_few_rows(offsets, p.tiles.experts, (int)p.tiles.rows, blockIdx.y,
                                        bad_offset, blockIdx.x == 0 && blockIdx.y == 0);
    if (lane == 0) {
      s.rows = rows;
    }
  } else if (warp == 1 && lane < TGI_PACKED_HEADER_BYTES / 4) {
    s.header[lane] = reinterpret_cast<const uint32_t *>(w.packed.data)[lane];
  }
  __syncthreads();
}

/** Where the rows come from, by one warp, while the first groups are on their way. */
__device__ __forceinline__ void find_few_sources(few_shared &s, const rows_product &p)
{
  const int i = threadIdx.x;
  if (i < kFewRows) {
    const bool exists = s.rows.e < p.tiles.experts && i < s.rows.r1 - s.rows.r0;
    s.source[i] = exists ? p.sources.of(s.rows.r0 + i, blockIdx.x == 0) : -1;
  }
  __syncthreads();
}

/** The sums of a panel, by all warps: a warp has a row. */
__device__ __forceinline__ void store_few(const few_shared &s, int which, const rows_product &p,
                                          const mxfp4_weight &w, int64_t panel)
{
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t r = s.rows.r0 + warp, o = panel * TGI_PANEL_ROWS + lane;
  if (r >= s.rows.r1 || o >= p.cols) {
    return;
  }
  const bool none = s.rows.e == p.tiles.experts;
  float sum = 0;
#pragma unroll
  for (int v = 0; v < kMmaWarps; v++) {
    sum = sum + s.part[which][v][warp][lane];
  }
  if (!none && p.bias.data) {
    sum += load_any(p.bias.data, p.bias.dtype, s.rows.e * p.bias.row_step + o);
  }
  const bool fits = w.fits(reinterpret_cast<const uint8_t *>(s.header),
                           panel == 0 && blockIdx.y == 0 && threadIdx.x == 0);
  const bool bad = s.rows.bad || !fits || (!none && s.source[warp] < 0);
  store_any(p.c, p.c_dtype, r * p.c_step + o, bad ? CUDART_NAN_F : sum);
}

/** Panels blockIdx.x, blockIdx.x + gridDim.x and so on. */
template <typename T>
__global__ void __launch_bounds__(kMmaThreads, kFewBlocks)
    grouped_linear_mxfp4_few_kernel(const rows_product p, const mxfp4_weight w,
                                    const int32_t *offsets, const fault_site bad_offset)
{
  __shared__ few_shared s;
  constexpr int kAhead = 2; /* groups that are on their way */
  constexpr int kBytes = kMmaWarps * TGI_MXFP4_GROUP_BYTES;
  find_few(s, p, w, offsets, bad_offset);
  if (s.rows.r0 == s.rows.r1) {
    return;
  }
  const int warp = threadIdx.x / kWarp, g = threadIdx.x % kWarp / 4, q = threadIdx.x % 4;
  const int groups = s.rows.e == p.tiles.experts ? 0 : (int)w.groups;
  const unsigned panels = (unsigned)w.panels;
  few_place at(w.packed.data);
  few_words words[kAhead];
  const auto read = [&](int i, int k) {
    if (k < groups) {
      words[i] = read_few(at, i * kBytes);
    }
  };
  const auto begin = [&](unsigned panel) {
    at = few_place(w.panel(groups > 0 ? s.rows.e : 0, panel) + warp * TGI_MXFP4_GROUP_BYTES);
#pragma unroll
    for (int i = 0; i < kAhead; i++) {
      read(i, warp + i * kMmaWarps);
    }
  };
  begin(blockIdx.x);
  find_few_sources(s, p);
  const bool exists = s.source[g] >= 0;
  const T *const row =
      static_cast<const T *>(p.a.data) + (exists ? s.source[g] * p.a.row_step : 0) + 8 * q;
  int which = 0;
  for (unsigned panel = blockIdx.x; panel < panels; panel += gridDim.x) {
    float total[2][1][4] = {};
    for (int k = warp; k < groups; k += kAhead * kMmaWarps) {
      at.skip(kAhead * kBytes);
#pragma unroll
      for (int i = 0; i < kAhead; i++) {
        if (k + i * kMmaWarps < groups) {
          uint4 b = make_uint4(0, 0, 0, 0);
          if (exists) {
            b = *reinterpret_cast<const uint4 *>(row + (int64_t)k * TGI_MXFP4_GROUP +
                                                 i * kMmaWarps * TGI_MXFP4_GROUP);
          }
          add_group_products<T, 1>(total, words[i], [&](int, uint32_t(&to)[4]) {
            to[0] = b.x;
            to[1] = b.y;
            to[2] = b.z;
            to[3] = b.w;
          });
          read(i, k + (kAhead + i) * kMmaWarps);
        }
      }
    }
    if (panel + gridDim.x < panels) {
      begin(panel + gridDim.x);
    }
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        s.part[which][warp][2 * q + i % 2][few_panel_row(m, i)] = total[m][0][i];
      }
    }
    __syncthreads();
    store_few(s, which, p, w, panel);
    which ^= 1;
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
