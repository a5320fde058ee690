/* Grouped linear layers with weights in MXFP4 on tensor cores, forward.
 *
 * Method     Codes become 16-bit floats in registers, exactly, and are the left operand of products
 *            with x; a group's sum is scaled in f32 (mxfp4_groups_sm80.cuh).
 * Work       Up to 64 rows: mxfp4_few_sm80.cuh. More: a block for 64 rows of an expert and 256 rows
 *            of its weight, a panel for a warp; x passes through shared memory, the weight goes
 *            from memory to registers a group ahead.
 * Bound      Few rows: memory, the packed weights of the experts that have rows. Many: tensor
 *            cores.
 */
#include "ops/grouped_linear_mxfp4/mxfp4_few_sm80.cuh"

extern "C" {
#include "ops/refusal_rules.h"
}

namespace
{

template <typename T>
__global__ void __launch_bounds__(kMmaThreads, 2)
    grouped_linear_mxfp4_many_kernel(const rows_product p, const mxfp4_weight w)
{
  __shared__ row_stages s;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4;
  for (int64_t tile = blockIdx.x; tile < tiles_of(p); tile += gridDim.x) {
    begin_tile(s, p, tile);
    const int panel = s.tile.column_tile * kMmaWarps + warp;
    const int groups = s.tile.e == p.tiles.experts ? 0 : (int)w.groups;
    const bool exists = panel < w.panels && groups > 0;
    const uint8_t *group = exists ? w.panel(s.tile.e, panel) : w.packed.data;
    float total[2][kRowTiles][4] = {};
    group_words next = read_group(group, exists);
    for_stages(s, p, groups, [&](int k, uint32_t stage) {
      const group_words now = next;
      next = read_group(group + (int64_t)(k + 1) * TGI_MXFP4_GROUP_BYTES, exists && k + 1 < groups);
      add_group_products<T, kRowTiles>(total, now, [&](int n, uint32_t(&x)[4]) {
        load_shared(x, stage + (8 * n + g) * kRowBytes + 16 * q);
      });
    });
#pragma unroll
    for (int n = 0; n < kRowTiles; n++) {
#pragma unroll
      for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          store_element(s, p, 8 * n + 2 * q + i % 2,
                        (int64_t)panel * TGI_PANEL_ROWS + 16 * m + g + 8 * (i / 2), total[m][n][i]);
        }
      }
    }
  }
}

template <typename T> tg_status run(const tg_context *ctx, const mxfp4_problem &q)
{
  rows_product p = q.p;
  if (p.tiles.rows <= kMostFew) {
    const dim3 grid = few_grid(ctx, q.w.panels, p.tiles.experts, p.tiles.rows);
    return launch(ctx, grouped_linear_mxfp4_few_kernel<T>, grid, kMmaThreads, 0, p, q.w,
                  static_cast<const int32_t *>(q.offsets->data), q.bad_offset);
  }
  p.column_tiles = divide_up(q.w.panels, (int64_t)kMmaWarps);
  const int64_t tiles = most_tiles(p.tiles.experts, p.tiles.rows) * p.column_tiles;
  const tg_status status = find_mxfp4_tiles(ctx, q.offsets, p.tiles, q.w, q.bad_offset);
  return status ? status
                : launch(ctx, grouped_linear_mxfp4_many_kernel<T>, grid_of(tiles), kMmaThreads, 0,
                         p, q.w);
}

bool takes(const tg_grouped_linear_mxfp4_fwd_args *a)
{
  return a->x.dtype != TG_F32 && tgi_any_rows_begin_at(&a->x, 16) &&
         (uintptr_t)a->weight.data % 16 == 0 && tgi_panel_count(2 * a->y.shape[1]) <= INT32_MAX;
}

} // namespace

extern "C" size_t TGI_WORKSPACE(grouped_linear_mxfp4_fwd)(const tg_context *,
                                                          const tg_grouped_linear_mxfp4_fwd_args *a)
{
  return mxfp4_fwd_bytes(a);
}

extern "C" tg_status TGI_KERNEL(grouped_linear_mxfp4_fwd)(const tg_context *ctx,
                                                          const tg_grouped_linear_mxfp4_fwd_args *a)
{
  const mxfp4_problem q = mxfp4_fwd_problem(ctx, a);
  const tg_status status = !takes(a)               ? multiply_mxfp4_rows(ctx, q)
                           : a->x.dtype == TG_BF16 ? run<bf16>(ctx, q)
                                                   : run<half>(ctx, q);
  return status ? status : activate_mxfp4(ctx, a);
}

extern "C" void TGI_PLAN(grouped_linear_mxfp4_fwd)(const tg_context *,
                                                   const tg_grouped_linear_mxfp4_fwd_args *a,
                                                   char *text, size_t bytes)
{
  if (!takes(a)) {
    tell_plain_mxfp4(text, bytes);
  } else if (a->y.shape[0] <= kMostFew) {
    snprintf(text, bytes, "tensor cores, blocks of %d x %d, %d warps along columns", kFewRows,
             TGI_PANEL_ROWS, kMmaWarps);
  } else {
    snprintf(text, bytes, "tensor cores, tiles of %d x %d", kTileRows, kMmaWarps * TGI_PANEL_ROWS);
  }
}
