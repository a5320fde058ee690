/* Experts' feed-forward blocks on Hopper, forward.
 *
 * Method     The steps of moe_mlp_steps.h: both products on tensor cores, the first with its
 *            activation (ops/grouped_linear/sm90), then the sum of each token's rows.
 * Work       That of these kernels.
 * Bound      Tensor cores.
 */
#include "ops/moe_mlp/moe_mlp_run.cuh"

extern "C" {
#include "ops/grouped_linear/grouped_refusals.h"
}

namespace
{

/* h is written where it is a result: the activation does not read it from memory. */
moe_mlp_fwd_steps steps_of(const tg_moe_mlp_fwd_args *a)
{
  moe_mlp_fwd_steps s = moe_mlp_fwd_steps_of(a);
  s.up.preactivation = a->preactivation;
  return s;
}

bool takes(const tg_context *ctx, const tg_moe_mlp_fwd_args *a, const moe_mlp_fwd_steps &s)
{
  return !tgi_experts_fwd_refused(a) && takes_grouped_linear_fwd(ctx, &s.up) &&
         takes_grouped_linear_fwd(ctx, &s.down);
}

} // namespace

extern "C" size_t TGI_WORKSPACE(moe_mlp_fwd)(const tg_context *ctx, const tg_moe_mlp_fwd_args *a)
{
  return moe_mlp_fwd_bytes(ctx, steps_of(a));
}

extern "C" tg_status TGI_KERNEL(moe_mlp_fwd)(const tg_context *ctx, const tg_moe_mlp_fwd_args *a)
{
  const moe_mlp_fwd_steps s = steps_of(a);
  if (!takes(ctx, a, s)) {
    return TG_UNSUPPORTED;
  }
  return run_moe_mlp_fwd(ctx, s);
}

extern "C" void TGI_PLAN(moe_mlp_fwd)(const tg_context *ctx, const tg_moe_mlp_fwd_args *a,
                                      char *text, size_t bytes)
{
  const moe_mlp_fwd_steps s = steps_of(a);
  if (takes(ctx, a, s)) {
    TGI_PLAN(grouped_linear_fwd)(ctx, &s.up, text, bytes);
  }
}
