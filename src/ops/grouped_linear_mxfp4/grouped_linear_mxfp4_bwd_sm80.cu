/* Grouped linear layers with weights in MXFP4 on tensor cores, backward: dx in bf16.
 *
 * Method     W turned is the left operand. Lane 4 g + q reads codes 4 (g % 2) to 4 (g % 2) + 3 of
 *            line g / 2, for rows 8 q to 8 q + 7 of a panel; two rows' codes of a column are a
 *            pair, scaled to its exact value in bf16.
 * Work       A block for 64 rows of an expert and 256 columns of its weight, a group for a warp; dy
 *            passes through shared memory, the weight goes from memory to registers a panel ahead.
 * Bound      Tensor cores.
 */
#include "ops/grouped_linear_mxfp4/mxfp4_codes_sm80.cuh"
#include "ops/grouped_linear_mxfp4/mxfp4_rows_sm80.cuh"

extern "C" {
#include "ops/refusal_rules.h"
}

namespace
{

/* A lane's part of a group and of 16 rows of a panel: a line's words of four rows, and their
 * scales. */
struct turned_words {
  uint4 word;
  uint32_t scale;
};

/* Of step s, rows 16 s to 16 s + 15 in the order of the product: 8 q + 4 s and the next three. */
__device__ __forceinline__ turned_words read_turned(const uint8_t *group, int s, bool exists)
{
  const int lane = threadIdx.x % kWarp, line = lane / 8, q = lane % 4;
  turned_words w = {};
  if (exists) {
    const uint8_t *words = group + TGI_PANEL_ROWS + line * TGI_MXFP4_LINE_BYTES + 32 * q;
    w.word = *reinterpret_cast<const uint4 *>(words + 16 * s);
    w.scale = *reinterpret_cast<const uint32_t *>(group + 8 * q + 4 * s);
  }
  return w;
}

/* The lane's four columns of two rows of W, each a pair, scaled: those of m go to a[m]. */
__device__ __forceinline__ void widen_rows(uint32_t (&a)[2][4], int half, uint32_t first,
                                           uint32_t second, uint32_t scales)
{
  const bool high = threadIdx.x / 4 % 2 != 0;
  const uint32_t codes = pick_bytes(first, second, high ? 0x7632 : 0x5410);
#pragma unroll
  for (int j = 0; j < 4; j++) {
    a[j / 2][2 * half + j % 2] = multiply_bf16(code_pair<bf16>(codes, j), scales);
  }
}

__device__ __forceinline__ void widen(uint32_t (&a)[2][4], const turned_words &w)
{
  const uint32_t c = w.scale;
  widen_rows(a, 0, w.word.x, w.word.y, scale_pair(c & 255u, c >> 8 & 255u));
  widen_rows(a, 1, w.word.z, w.word.w, scale_pair(c >> 16 & 255u, c >> 24));
}

/* total[m][n] += the products of step s: columns 4 g + 2 m + i / 2 of the group, rows 8 n + 2 q +
 * i % 2 of dy. */
__device__ __forceinline__ void add_step(float (&total)[2][kRowTiles][4], const uint32_t (&a)[2][4],
                                         int s, uint32_t stage)
{
  const int lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4;
#pragma unroll
  for (int n = 0; n < kRowTiles; n++) {
    uint32_t dy[2];
    load_shared(dy, stage + (8 * n + g) * kRowBytes + 16 * q + 8 * s);
#pragma unroll
    for (int m = 0; m < 2; m++) {
      multiply_small<bf16>(total[m][n], a[m], dy[0], dy[1], true);
    }
  }
}

__global__ void __launch_bounds__(kMmaThreads, 2)
    grouped_linear_mxfp4_turned_kernel(const rows_product p, const mxfp4_weight w)
{
  __shared__ row_stages s;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4;
  const int64_t panel_bytes = w.groups * TGI_MXFP4_GROUP_BYTES;
  for (int64_t tile = blockIdx.x; tile < tiles_of(p); tile += gridDim.x) {
    begin_tile(s, p, tile);
    const int mine = s.tile.column_tile * kMmaWarps + warp;
    const int panels = s.tile.e == p.tiles.experts ? 0 : (int)w.panels;
    const bool exists = mine < w.groups && panels > 0;
    const uint8_t *group =
        exists ? w.panel(s.tile.e, 0) + (int64_t)mine * TGI_MXFP4_GROUP_BYTES : w.packed.data;
    float total[2][kRowTiles][4] = {};
    turned_words w0 = read_turned(group, 0, exists), w1 = read_turned(group, 1, exists);
    for_stages(s, p, panels, [&](int k, uint32_t stage) {
      uint32_t a[2][4];
      const bool more = exists && k + 1 < panels;
      group += panel_bytes;
      widen(a, w0);
      w0 = read_turned(group, 0, more);
      add_step(total, a, 0, stage);
      widen(a, w1);
      w1 = read_turned(group, 1, more);
      add_step(total, a, 1, stage);
    });
#pragma unroll
    for (int n = 0; n < kRowTiles; n++) {
#pragma unroll
      for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          store_element(s, p, 8 * n + 2 * q + i % 2,
                        (int64_t)mine * TGI_MXFP4_GROUP + 4 * g + 2 * m + i / 2, total[m][n][i]);
        }
      }
    }
  }
}

tg_status multiply_turned(const tg_context *ctx, const mxfp4_problem &q)
{
  rows_product p = q.p;
  p.column_tiles = divide_up(q.w.groups, (int64_t)kMmaWarps);
  const int64_t tiles = most_tiles(p.tiles.experts, p.tiles.rows) * p.column_tiles;
  const tg_status status = find_mxfp4_tiles(ctx, q.offsets, p.tiles, q.w, q.bad_offset);
  return status ? status
                : launch(ctx, grouped_linear_mxfp4_turned_kernel, grid_of(tiles), kMmaThreads, 0, p,
                         q.w);
}

/* Whole panels: a stage of dy is one. */
bool takes(const tg_grouped_linear_mxfp4_bwd_args *a)
{
  return a->dx.dtype == TG_BF16 && a->dy.dtype == TG_BF16 && tgi_any_rows_begin_at(&a->dy, 16) &&
         a->dy.shape[1] % TGI_PANEL_ROWS == 0 && (uintptr_t)a->weight.data % 16 == 0;
}

} // namespace

extern "C" size_t TGI_WORKSPACE(grouped_linear_mxfp4_bwd)(const tg_context *,
                                                          const tg_grouped_linear_mxfp4_bwd_args *a)
{
  return mxfp4_bwd_bytes(a);
}

extern "C" tg_status TGI_KERNEL(grouped_linear_mxfp4_bwd)(const tg_context *ctx,
                                                          const tg_grouped_linear_mxfp4_bwd_args *a)
{
  const mxfp4_problem q = mxfp4_bwd_problem(ctx, a);
  const tg_status status = takes(a) ? multiply_turned(ctx, q) : multiply_mxfp4_turned(ctx, q);
  return status ? status : add_mxfp4_dbias(ctx, q, a);
}

extern "C" void TGI_PLAN(grouped_linear_mxfp4_bwd)(const tg_context *,
                                                   const tg_grouped_linear_mxfp4_bwd_args *a,
                                                   char *text, size_t bytes)
{
  if (takes(a)) {
    snprintf(text, bytes, "tensor cores, tiles of %d x %d", kTileRows, kMmaWarps * TGI_MXFP4_GROUP);
  } else {
    tell_plain_mxfp4(text, bytes);
  }
}
