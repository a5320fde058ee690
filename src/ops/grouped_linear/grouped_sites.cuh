/** Grouped linear layers within another op: the kernels' launches, with the op's own arguments in
 * the records of data errors. Defined in grouped_linear.cu and grouped_linear_bwd.cu; for the entry
 * sm90 in its files, where calls that are not taken are UNSUPPORTED. */
#ifndef TGI_OPS_GROUPED_SITES_CUH
#define TGI_OPS_GROUPED_SITES_CUH

#include "cuda/fault.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** The arguments that hold what grouped_linear calls offsets and slot. */
struct grouped_sites {
  fault_site offsets, slot;
};

tg_status run_grouped_linear_fwd(const tg_context *ctx, const tg_grouped_linear_fwd_args *a,
                                 grouped_sites sites);

tg_status run_grouped_linear_bwd(const tg_context *ctx, const tg_grouped_linear_bwd_args *a,
                                 grouped_sites sites);

/** Whether the forward makes its activation in the kernel of the product, and reads no
 * preactivation from memory. */
bool activates_beside(const tg_grouped_linear_fwd_args *a);

#if TGI_VIRTUAL >= 90
/** Whether the calls are taken; nothing is launched. */
bool takes_grouped_linear_fwd(const tg_context *ctx, const tg_grouped_linear_fwd_args *a);
bool takes_grouped_linear_bwd(const tg_context *ctx, const tg_grouped_linear_bwd_args *a);
#endif

} // namespace TGI_CUDA_ENTRY

#endif
