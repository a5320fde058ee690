/* Grouped linear layers on Hopper, forward.
 *
 * Method     One warp makes the list of tiles of rows from `offsets`; with slots, a kernel
 *            copies the rows of x in the order of the experts; then the product
 *            (grouped_rows_sm90.cu), which adds the bias and computes the activation. Of gate
 *            and up in halves of a weight [in, out], which do not fit a tile, the activation is
 *            sm80's kernel behind it.
 * Work       A tile of 128 x 192 for a block at a time.
 * Bound      Tensor cores; with few rows an expert, memory.
 */
#include "ops/grouped_linear/grouped_sites.cuh"
#include "ops/grouped_linear/sm90/grouped_products_sm90.cuh"

namespace
{

/* What follows each other in the workspace. */
struct fwd_parts {
  size_t gathered, z, bytes; /* where gathered rows of x and z begin */
};

bool is_gated(const tg_grouped_linear_fwd_args *a)
{
  return a->activation != TG_GATED_NONE;
}

rows_call call_of(const tg_context *ctx, const tg_grouped_linear_fwd_args *a)
{
  rows_call c = {};
  c.act = TGI_GATED_CHOICE(a);
  c.problem = rows_problem(&a->x, &a->weight, a->in_first, a->y.shape[0], a->y.dtype);
  const bool saves = tgi_present(&a->preactivation);
  c.problem.c.vectors = rows_aligned(&a->y, 16) && (!saves || rows_aligned(&a->preactivation, 16));
  if (is_gated(a)) {
    c.problem.epilogue =
        a->packing == TG_GATE_UP_HALVES ? TGI_GEMM_GATED_HALVES : TGI_GEMM_GATED_PAIRS;
  }
  const tgi_gemm_device device = gemm_device_of(ctx);
  c.plan = tgi_gemm_plan_sm90(&c.problem, &device);
  c.tiles = expert_tiles_in(a->workspace, a->weight.shape[0], a->y.shape[0], kGemmTileM);
  c.weight = &a->weight;
  c.bias = &a->bias;
  return c;
}

/* From shapes alone, as the workspace is sized before there are addresses. */
fwd_parts parts_of(const tg_grouped_linear_fwd_args *a, bool fused)
{
  const int64_t rows = a->y.shape[0];
  fwd_parts p = {};
  p.gathered = expert_tiles_bytes(a->weight.shape[0]);
  p.z = p.gathered + (tgi_present(&a->slot) ? gathered_bytes(&a->x, rows) : 0);
  const bool apart = is_gated(a) && !fused && !tgi_present(&a->preactivation);
  p.bytes = p.z + (apart ? 2 * gathered_bytes(&a->y, rows) : 0);
  return p;
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

bool takes_grouped_linear_fwd(const tg_context *ctx, const tg_grouped_linear_fwd_args *a)
{
  return !tgi_grouped_fwd_refused(a) && call_of(ctx, a).plan.kernel == TGI_GEMM_SM90_TILES;
}

tg_status run_grouped_linear_fwd(const tg_context *ctx, const tg_grouped_linear_fwd_args *a,
                                 grouped_sites sites)
{
  if (!takes_grouped_linear_fwd(ctx, a)) {
    return TG_UNSUPPORTED;
  }
  rows_call c = call_of(ctx, a);
  const fwd_parts parts = parts_of(a, c.plan.fused);
  char *workspace = static_cast<char *>(a->workspace);
  const tg_tensor x = gathered_tensor(workspace + parts.gathered, &a->x, c.problem.m);
  tg_tensor z = is_gated(a) ? a->preactivation : a->y;
  if (is_gated(a) && !c.plan.fused && !tgi_present(&z)) {
    z = tg_tensor_2d(workspace + parts.z, a->y.dtype, c.problem.m, c.problem.n);
  }
  c.a = tgi_present(&a->slot) ? &x : &a->x;
  c.z = tgi_present(&z) ? &z : NULL;
  c.y = is_gated(a) && c.plan.fused ? &a->y : NULL;
  tg_status status = find_tiles(ctx, &a->offsets, c.tiles, sites.offsets);
  if (status == TG_OK && tgi_present(&a->slot)) {
    row_sources sources = {};
    sources.slot = static_cast<const int32_t *>(a->slot.data);
    sources.slots = a->x.shape[0] * a->slots_per_row;
    sources.slots_per_row = (int)a->slots_per_row;
    sources.bad_slot = sites.slot;
    status = gather_rows(ctx, c.tiles, sources, &a->x, &x);
  }
  if (status == TG_OK) {
    status = multiply_rows_sm90(ctx, c);
  }
  if (status == TG_OK && is_gated(a) && !c.plan.fused) {
    status = tgi_activate(ctx, c.act, &z, &a->y);
  }
  return status;
}

} // namespace TGI_CUDA_ENTRY

extern "C" size_t TGI_WORKSPACE(grouped_linear_fwd)(const tg_context *ctx,
                                                    const tg_grouped_linear_fwd_args *a)
{
  return parts_of(a, call_of(ctx, a).plan.fused).bytes;
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
  const rows_call c = call_of(ctx, a);
  if (takes_grouped_linear_fwd(ctx, a)) {
    tgi_gemm_plan_text(&c.problem, &c.plan, text, bytes);
  }
}
