/* Experts' feed-forward blocks on Hopper, backward.
 *
 * Method     The steps of moe_mlp_steps.h: the products on tensor cores (ops/grouped_linear/sm90),
 *            what lies between them by sm80's kernels. Rows of dy, which two products take in the
 *            order of the experts, are copied once for both.
 * Work       That of these kernels.
 * Bound      Tensor cores.
 */
#include "ops/grouped_linear/grouped_sites.cuh"
#include "ops/grouped_linear/sm90/gathered_rows_sm90.cuh"
#include "ops/moe_combine/combine_vectors.cuh"
#include "ops/moe_mlp/moe_mlp_between.cuh"

extern "C" {
#include "ops/grouped_linear/grouped_refusals.h"
}

namespace
{

/* The steps, with dy's rows in the order of the experts in place of dy and its slots. */
struct sorted_steps {
  moe_mlp_bwd_steps s;
  tg_tensor dy;
};

sorted_steps sorted_steps_of(const tg_moe_mlp_bwd_args *a)
{
  sorted_steps t = {};
  t.s = moe_mlp_bwd_steps_of(a);
  moe_mlp_bwd_steps &s = t.s;
  t.dy = moe_mlp_take(a->workspace, &s.bytes, a->dy.dtype, a->slot.shape[0], a->dy.shape[1]);
  s.back.x = s.down.x = t.dy;
  memset(&s.back.slot, 0, sizeof s.back.slot);
  s.down.slot = s.back.slot;
  s.back.slots_per_row = s.down.slots_per_row = 0;
  s.back.workspace = s.down.workspace = s.up.workspace =
      a->workspace ? static_cast<char *>(a->workspace) + s.bytes : NULL;
  return t;
}

bool takes(const tg_context *ctx, const tg_moe_mlp_bwd_args *a, const sorted_steps &t)
{
  return !tgi_experts_bwd_refused(a) &&
         (!t.s.has_back || takes_grouped_linear_fwd(ctx, &t.s.back)) &&
         (!t.s.has_down || takes_grouped_linear_bwd(ctx, &t.s.down)) &&
         (!t.s.has_up || takes_grouped_linear_bwd(ctx, &t.s.up));
}

tg_status sort_dy(const tg_context *ctx, const tg_moe_mlp_bwd_args *a, const sorted_steps &t,
                  grouped_sites sites)
{
  char *behind = static_cast<char *>(a->workspace) + t.s.bytes;
  const expert_tiles tiles = expert_tiles_in(behind, a->gate_up.shape[0], a->slot.shape[0]);
  row_sources sources = {};
  sources.slot = static_cast<const int32_t *>(a->slot.data);
  sources.slots = a->slot.shape[0];
  sources.slots_per_row = (int)a->row.shape[1];
  sources.bad_slot = sites.slot;
  const tg_status status = find_tiles(ctx, &a->offsets, tiles, sites.offsets);
  return status == TG_OK ? gather_rows(ctx, tiles, sources, &a->dy, &t.dy) : status;
}

} // namespace

extern "C" size_t TGI_WORKSPACE(moe_mlp_bwd)(const tg_context *ctx, const tg_moe_mlp_bwd_args *a)
{
  const sorted_steps t = sorted_steps_of(a);
  const size_t down = TGI_WORKSPACE(grouped_linear_bwd)(ctx, &t.s.down);
  const size_t up = TGI_WORKSPACE(grouped_linear_bwd)(ctx, &t.s.up);
  return t.s.bytes + (up > down ? up : down);
}

extern "C" tg_status TGI_KERNEL(moe_mlp_bwd)(const tg_context *ctx, const tg_moe_mlp_bwd_args *a)
{
  const sorted_steps t = sorted_steps_of(a);
  if (!takes(ctx, a, t)) {
    return TG_UNSUPPORTED;
  }
  const grouped_sites sites = {FAULT_SITE(ctx, moe_mlp_bwd, offsets),
                               FAULT_SITE(ctx, moe_mlp_bwd, slot)};
  tg_status status = TG_OK;
  if (t.s.has_back || t.s.has_down) {
    status = sort_dy(ctx, a, t, sites);
  }
  if (status == TG_OK && t.s.has_back) {
    status = run_grouped_linear_fwd(ctx, &t.s.back, sites);
  }
  if (status == TG_OK) {
    status = TGI_MOE_MLP_BETWEEN(sm80)(ctx, a, &t.s);
  }
  if (status == TG_OK && t.s.has_down) {
    status = run_grouped_linear_bwd(ctx, &t.s.down, sites);
  }
  if (status == TG_OK && t.s.has_up) {
    status = run_grouped_linear_bwd(ctx, &t.s.up, sites);
  }
  if (status == TG_OK && tgi_present(&a->dx)) {
    status = run_moe_combine_fwd(ctx, &t.s.sum, FAULT_SITE(ctx, moe_mlp_bwd, row));
  }
  return status;
}

extern "C" void TGI_PLAN(moe_mlp_bwd)(const tg_context *ctx, const tg_moe_mlp_bwd_args *a,
                                      char *text, size_t bytes)
{
  const sorted_steps t = sorted_steps_of(a);
  if (takes(ctx, a, t)) {
    TGI_PLAN(grouped_linear_bwd)(ctx, &t.s.up, text, bytes);
  }
}
