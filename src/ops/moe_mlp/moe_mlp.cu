/* Experts' feed-forward blocks on CUDA, forward.
 *
 * Method     The steps of moe_mlp_steps.h, which are kernels of other ops: the product with gate_up
 *            and its activation, the product with down, and the sum of each token's rows.
 * Work       That of these kernels.
 * Bound      The products' f32 arithmetic.
 */
#include "ops/grouped_linear/grouped_sites.cuh"
#include "ops/moe_combine/combine_vectors.cuh"

extern "C" {
#include "ops/moe_mlp/moe_mlp_steps.h"
}

extern "C" size_t TGI_WORKSPACE(moe_mlp_fwd)(const tg_context *ctx, const tg_moe_mlp_fwd_args *a)
{
  const moe_mlp_fwd_steps s = moe_mlp_fwd_steps_of(a);
  const size_t up = TGI_WORKSPACE(grouped_linear_fwd)(ctx, &s.up);
  const size_t down = TGI_WORKSPACE(grouped_linear_fwd)(ctx, &s.down);
  return s.bytes + (up > down ? up : down);
}

extern "C" tg_status TGI_KERNEL(moe_mlp_fwd)(const tg_context *ctx, const tg_moe_mlp_fwd_args *a)
{
  const moe_mlp_fwd_steps s = moe_mlp_fwd_steps_of(a);
  const grouped_sites sites = {FAULT_SITE(ctx, moe_mlp_fwd, offsets),
                               FAULT_SITE(ctx, moe_mlp_fwd, slot)};
  tg_status status = run_grouped_linear_fwd(ctx, &s.up, sites);
  if (status == TG_OK) {
    status = run_grouped_linear_fwd(ctx, &s.down, sites);
  }
  if (status == TG_OK) {
    status = run_moe_combine_fwd(ctx, &s.sum, FAULT_SITE(ctx, moe_mlp_fwd, row));
  }
  return status;
}

extern "C" void TGI_PLAN(moe_mlp_fwd)(const tg_context *ctx, const tg_moe_mlp_fwd_args *a,
                                      char *text, size_t bytes)
{
  const moe_mlp_fwd_steps s = moe_mlp_fwd_steps_of(a);
  TGI_PLAN(grouped_linear_fwd)(ctx, &s.up, text, bytes);
}
