/** The forward of experts' feed-forward blocks on CUDA by kernels of other ops: their workspace and
 * their order, for every entry. */
#ifndef TGI_OPS_MOE_MLP_RUN_CUH
#define TGI_OPS_MOE_MLP_RUN_CUH

#include "ops/grouped_linear/grouped_sites.cuh"
#include "ops/moe_combine/combine_vectors.cuh"

extern "C" {
#include "ops/moe_mlp/moe_mlp_steps.h"
}

inline namespace TGI_CUDA_ENTRY
{

inline size_t moe_mlp_fwd_bytes(const tg_context *ctx, const moe_mlp_fwd_steps &s)
{
  const size_t up = TGI_WORKSPACE(grouped_linear_fwd)(ctx, &s.up);
  const size_t down = TGI_WORKSPACE(grouped_linear_fwd)(ctx, &s.down);
  return s.bytes + (up > down ? up : down);
}

inline tg_status run_moe_mlp_fwd(const tg_context *ctx, const moe_mlp_fwd_steps &s)
{
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

} // namespace TGI_CUDA_ENTRY

#endif
