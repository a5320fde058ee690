/* Experts' feed-forward blocks on CUDA, forward.
 *
 * Method     The steps of moe_mlp_steps.h, which are kernels of other ops: the product with gate_up
 *            and its activation, the product with down, and the sum of each token's rows.
 * Work       That of these kernels.
 * Bound      The products: f32 arithmetic, or tensor cores.
 */
#include "ops/moe_mlp/moe_mlp_run.cuh"

namespace
{

/* h is written where an activation reads it, or where it is a result. */
moe_mlp_fwd_steps steps_of(const tg_moe_mlp_fwd_args *a)
{
  moe_mlp_fwd_steps s = moe_mlp_fwd_steps_of(a);
  if (activates_beside(&s.up)) {
    s.up.preactivation = a->preactivation;
  }
  return s;
}

} // namespace

extern "C" size_t TGI_WORKSPACE(moe_mlp_fwd)(const tg_context *ctx, const tg_moe_mlp_fwd_args *a)
{
  return moe_mlp_fwd_bytes(ctx, steps_of(a));
}

extern "C" tg_status TGI_KERNEL(moe_mlp_fwd)(const tg_context *ctx, const tg_moe_mlp_fwd_args *a)
{
  return run_moe_mlp_fwd(ctx, steps_of(a));
}

extern "C" void TGI_PLAN(moe_mlp_fwd)(const tg_context *ctx, const tg_moe_mlp_fwd_args *a,
                                      char *text, size_t bytes)
{
  const moe_mlp_fwd_steps s = steps_of(a);
  TGI_PLAN(grouped_linear_fwd)(ctx, &s.up, text, bytes);
}
