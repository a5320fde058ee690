/* Grouped linear layers on CUDA, forward.
 *
 * Method     One warp makes the list of tiles of rows from `offsets` (expert_tiles.cuh); then each
 *            block multiplies tiles of 64 rows of one expert by 64 columns of its weight
 *            (expert_product.cuh), gathering rows of x by `slot` as it reads them.
 * Work       A tile of y for a block; the last tile of an expert is partly empty.
 * Bound      f32 arithmetic.
 */
#include "ops/grouped_linear/expert_rows_product.cuh"

extern "C" size_t TGI_WORKSPACE(grouped_linear_fwd)(const tg_context *,
                                                    const tg_grouped_linear_fwd_args *a)
{
  return expert_tiles_bytes(a->weight.shape[0]);
}

extern "C" tg_status TGI_KERNEL(grouped_linear_fwd)(const tg_context *ctx,
                                                    const tg_grouped_linear_fwd_args *a)
{
  rows_product p = {};
  p.tiles = expert_tiles_in(a->workspace, a->weight.shape[0], a->y.shape[0]);
  p.sources.slot = static_cast<const int32_t *>(a->slot.data);
  p.sources.slots = a->x.shape[0] * a->slots_per_row;
  p.sources.slots_per_row = (int)a->slots_per_row;
  p.sources.bad_slot = FAULT_SITE(ctx, grouped_linear_fwd, slot);
  p.a = matrix_of_rank(&a->x);
  p.b = matrix_of_rank(&a->weight);
  p.bias = matrix_of_rank(&a->bias);
  p.b_along_k = !a->in_first;
  p.c = a->y.data;
  p.c_dtype = a->y.dtype;
  p.c_step = tgi_stride(&a->y, 0);
  p.cols = a->y.shape[1];
  p.steps = a->x.shape[1];
  const tg_status status =
      find_tiles(ctx, &a->offsets, p.tiles, FAULT_SITE(ctx, grouped_linear_fwd, offsets));
  return status == TG_OK ? multiply_rows(ctx, p) : status;
}

extern "C" void TGI_PLAN(grouped_linear_fwd)(const tg_context *, const tg_grouped_linear_fwd_args *,
                                             char *text, size_t bytes)
{
  snprintf(text, bytes, "f32 multiply-adds, tiles of %d x %d, blocks of %d products", kTileRows,
           kTileCols, kSumBlock);
}
