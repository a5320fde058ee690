/* Grouped linear layers on Hopper, backward.
 *
 * Method     dx: the forward's kernel over rows of dy. dweight: products over the rows of each
 * expert (grouped_steps_sm90.cu), of rows of x that with slots are copied in the order of the
 *            experts before. dbias: expert_bias_sums.cuh.
 * Work       A tile of 128 x 192 of dx or dweight for a block at a time.
 * Bound      Tensor cores; dbias, and dweight of few rows an expert: memory.
 */
#include "ops/grouped_linear/expert_bias_sums.cuh"
#include "ops/grouped_linear/grouped_sites.cuh"
#include "ops/grouped_linear/sm90/grouped_products_sm90.cuh"

namespace
{

struct bwd_calls {
  rows_call dx;
  steps_call dweight;
  bool taken;
};

/* dweight is [out, in] of dy^T x, or [in, out] of x^T dy. */
tgi_gemm_problem dweight_problem(const tg_grouped_linear_bwd_args *a)
{
  const bool given = tgi_present(&a->dweight);
  tgi_gemm_problem p = {};
  p.m = a->weight.shape[1];
  p.n = a->weight.shape[2];
  p.k = a->dy.shape[0];
  p.grouped = TGI_GEMM_GROUPS_OF_STEPS;
  p.groups = a->weight.shape[0];
  p.a = {a->dy.dtype, TGI_GEMM_ACROSS_K, rows_aligned(&a->dy, 16)};
  p.b = {a->x.dtype, TGI_GEMM_ACROSS_K, rows_aligned(&a->x, 16)};
  p.c = {given ? a->dweight.dtype : a->x.dtype, TGI_GEMM_ACROSS_K,
         !given || rows_aligned(&a->dweight, 16)};
  p.adds = !a->overwrite;
  return p;
}

bwd_calls calls_of(const tg_context *ctx, const tg_grouped_linear_bwd_args *a)
{
  const tgi_gemm_device device = gemm_device_of(ctx);
  const bool has_dx = tgi_present(&a->dx);
  const expert_tiles tiles =
      expert_tiles_in(a->workspace, a->weight.shape[0], a->dy.shape[0], kGemmTileM);
  bwd_calls c = {};
  c.dx.problem = rows_problem(&a->dy, &a->weight, !a->in_first, a->dy.shape[0], a->x.dtype);
  c.dx.problem.c.vectors = !has_dx || rows_aligned(&a->dx, 16);
  c.dx.plan = tgi_gemm_plan_sm90(&c.dx.problem, &device);
  c.dweight.problem = dweight_problem(a);
  c.dweight.plan = tgi_gemm_plan_sm90(&c.dweight.problem, &device);
  c.dx.tiles = c.dweight.tiles = tiles;
  c.dx.a = &a->dy;
  c.dx.weight = &a->weight;
  c.dx.z = &a->dx;
  c.dweight.c = &a->dweight;
  /* Both, whichever is wanted: what is asked for does not change which kernel computes it. */
  c.taken = !tgi_grouped_bwd_refused(a) && c.dx.plan.kernel == TGI_GEMM_SM90_TILES &&
            c.dweight.plan.kernel == TGI_GEMM_SM90_TILES;
  return c;
}

bool gathers(const tg_grouped_linear_bwd_args *a)
{
  return tgi_present(&a->dweight) && tgi_present(&a->slot);
}

tg_status add_dweight(const tg_context *ctx, const tg_grouped_linear_bwd_args *a, steps_call c,
                      fault_site bad_slot)
{
  char *behind = static_cast<char *>(a->workspace) + expert_tiles_bytes(a->weight.shape[0]);
  const tg_tensor gathered = gathered_tensor(behind, &a->x, a->dy.shape[0]);
  const tg_tensor *x = gathers(a) ? &gathered : &a->x;
  c.a = a->in_first ? x : &a->dy;
  c.b = a->in_first ? &a->dy : x;
  tg_status status = TG_OK;
  if (gathers(a)) {
    row_sources sources = {};
    sources.slot = static_cast<const int32_t *>(a->slot.data);
    sources.slots = a->x.shape[0] * a->slots_per_row;
    sources.slots_per_row = (int)a->slots_per_row;
    sources.bad_slot = bad_slot;
    status = gather_rows(ctx, c.tiles, sources, &a->x, &gathered);
  }
  return status == TG_OK ? multiply_steps_sm90(ctx, c) : status;
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

bool takes_grouped_linear_bwd(const tg_context *ctx, const tg_grouped_linear_bwd_args *a)
{
  return calls_of(ctx, a).taken;
}

tg_status run_grouped_linear_bwd(const tg_context *ctx, const tg_grouped_linear_bwd_args *a,
                                 grouped_sites sites)
{
  const bwd_calls c = calls_of(ctx, a);
  if (!c.taken) {
    return TG_UNSUPPORTED;
  }
  tg_status status = find_tiles(ctx, &a->offsets, c.dx.tiles, sites.offsets);
  if (status == TG_OK && tgi_present(&a->dx)) {
    status = multiply_rows_sm90(ctx, c.dx);
  }
  if (status == TG_OK && tgi_present(&a->dweight)) {
    status = add_dweight(ctx, a, c.dweight, sites.slot);
  }
  if (status == TG_OK && tgi_present(&a->dbias)) {
    status = add_dbias(ctx, a, c.dx.tiles);
  }
  return status;
}

} // namespace TGI_CUDA_ENTRY

extern "C" size_t TGI_WORKSPACE(grouped_linear_bwd)(const tg_context *,
                                                    const tg_grouped_linear_bwd_args *a)
{
  return expert_tiles_bytes(a->weight.shape[0]) +
         (gathers(a) ? gathered_bytes(&a->x, a->dy.shape[0]) : 0);
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
  const bwd_calls c = calls_of(ctx, a);
  if (c.taken && tgi_present(&a->dweight)) {
    tgi_gemm_plan_text(&c.dweight.problem, &c.dweight.plan, text, bytes);
  } else if (c.taken) {
    tgi_gemm_plan_text(&c.dx.problem, &c.dx.plan, text, bytes);
  }
}
