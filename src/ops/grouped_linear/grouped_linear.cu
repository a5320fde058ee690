/* Grouped linear layers on CUDA, forward.
 *
 * Method     One warp makes the list of tiles of rows from `offsets` (expert_tiles.cuh); then each
 *            block multiplies tiles of 64 rows of one expert by 64 columns of its weight
 *            (expert_product.cuh), gathering rows of x by `slot` as it reads them. An activation is
 *            a kernel of its own behind the product: that of swiglu or swiglu_clamped. From compute
 *            capability 8.0 on, 16-bit x and weight of one dtype are multiplied by tensor cores
 *            (sm80/grouped_rows_sm80.cu), with the activation of a y of that dtype beside them.
 * Work       A tile of y for a block; the last tile of an expert is partly empty.
 * Bound      f32 arithmetic; tensor cores.
 */
#include "ops/grouped_linear/expert_rows_product.cuh"
#include "ops/grouped_linear/grouped_sites.cuh"
#if TGI_VIRTUAL >= 80
#include "ops/grouped_linear/sm80/expert_products_sm80.cuh"
#endif

extern "C" {
#include "ops/shared/gated/gated_choice.h"
}

namespace
{

bool by_tensor_cores(const tg_grouped_linear_fwd_args *a)
{
#if TGI_VIRTUAL >= 80
  return multiplies_experts(&a->x, &a->weight);
#else
  (void)a;
  return false;
#endif
}

/* Where the product goes: y, or what an activation reads, which follows the tiles in the workspace
 * unless it is a result. */
tg_tensor z_of(const tg_grouped_linear_fwd_args *a)
{
  if (a->activation == TG_GATED_NONE) {
    return a->y;
  }
  if (tgi_present(&a->preactivation)) {
    return a->preactivation;
  }
  char *behind = static_cast<char *>(a->workspace) + expert_tiles_bytes(a->weight.shape[0]);
  return tg_tensor_2d(behind, a->y.dtype, a->y.shape[0], 2 * a->y.shape[1]);
}

#if TGI_VIRTUAL >= 80
tg_status run_on_tensor_cores(const tg_context *ctx, const tg_grouped_linear_fwd_args *a,
                              grouped_sites sites)
{
  const int64_t rows = a->y.shape[0], experts = a->weight.shape[0];
  const bool gated = a->activation != TG_GATED_NONE, fused = activates_beside(a);
  const tg_tensor z = gated && fused ? a->preactivation : z_of(a);
  expert_rows_call c = {};
  c.tiles = expert_tiles_in(a->workspace, experts, rows, expert_tile_rows(ctx, rows, experts));
  c.sources = sources_of(a, sites.slot);
  c.a = &a->x;
  c.weight = &a->weight;
  c.bias = &a->bias;
  c.z = &z;
  c.y = fused ? &a->y : NULL;
  c.act = TGI_GATED_CHOICE(a);
  c.across = a->in_first;
  tg_status status = find_tiles(ctx, &a->offsets, c.tiles, sites.offsets);
  if (status == TG_OK) {
    status = multiply_expert_rows(ctx, c);
  }
  return status == TG_OK && gated && !fused ? tgi_activate(ctx, c.act, &z, &a->y) : status;
}
#endif

} // namespace

inline namespace TGI_CUDA_ENTRY
{

bool activates_beside(const tg_grouped_linear_fwd_args *a)
{
  return by_tensor_cores(a) && a->activation != TG_GATED_NONE && a->y.dtype == a->x.dtype;
}

tg_status run_grouped_linear_fwd(const tg_context *ctx, const tg_grouped_linear_fwd_args *a,
                                 grouped_sites sites)
{
#if TGI_VIRTUAL >= 80
  if (by_tensor_cores(a)) {
    return run_on_tensor_cores(ctx, a, sites);
  }
#endif
  const tg_tensor z = z_of(a);
  rows_product p = {};
  p.tiles = expert_tiles_in(a->workspace, a->weight.shape[0], z.shape[0]);
  p.sources = sources_of(a, sites.slot);
  p.a = matrix_of_rank(&a->x);
  p.b = matrix_of_rank(&a->weight);
  p.bias = matrix_of_rank(&a->bias);
  p.b_along_k = !a->in_first;
  p.c = z.data;
  p.c_dtype = z.dtype;
  p.c_step = tgi_stride(&z, 0);
  p.cols = z.shape[1];
  p.steps = a->x.shape[1];
  tg_status status = find_tiles(ctx, &a->offsets, p.tiles, sites.offsets);
  if (status == TG_OK) {
    status = multiply_rows(ctx, p);
  }
  if (status == TG_OK && a->activation != TG_GATED_NONE) {
    status = tgi_activate(ctx, TGI_GATED_CHOICE(a), &z, &a->y);
  }
  return status;
}

} // namespace TGI_CUDA_ENTRY

extern "C" size_t TGI_WORKSPACE(grouped_linear_fwd)(const tg_context *,
                                                    const tg_grouped_linear_fwd_args *a)
{
  const size_t tiles = expert_tiles_bytes(a->weight.shape[0]);
  if (a->activation == TG_GATED_NONE || tgi_present(&a->preactivation) || activates_beside(a)) {
    return tiles;
  }
  return tiles + 2 * (size_t)tgi_numel(&a->y) * tg_dtype_bytes(a->y.dtype);
}

extern "C" tg_status TGI_KERNEL(grouped_linear_fwd)(const tg_context *ctx,
                                                    const tg_grouped_linear_fwd_args *a)
{
  return run_grouped_linear_fwd(
      ctx, a,
      {FAULT_SITE(ctx, grouped_linear_fwd, offsets), FAULT_SITE(ctx, grouped_linear_fwd, slot)});
}

extern "C" void TGI_PLAN(grouped_linear_fwd)(const tg_context *ctx,
                                             const tg_grouped_linear_fwd_args *a, char *text,
                                             size_t bytes)
{
#if TGI_VIRTUAL >= 80
  if (by_tensor_cores(a)) {
    tell_expert_rows(ctx, a->y.shape[0], a->weight.shape[0], text, bytes);
    return;
  }
#endif
  (void)ctx;
  (void)a;
  snprintf(text, bytes, "f32 multiply-adds, tiles of %d x %d, blocks of %d products", kTileRows,
           kTileCols, kSumBlock);
}
