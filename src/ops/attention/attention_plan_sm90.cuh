/** Attention forward on Hopper: how attention_sm90.cu starts its kernels. */
#ifndef TGI_OPS_ATTENTION_PLAN_SM90_CUH
#define TGI_OPS_ATTENTION_PLAN_SM90_CUH

#include "ops/attention/attention_fwd_plan.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** For heads of up to so many elements; in a file each, for they compile for long. */
tg_status run_attention_fwd_64(const tg_context *ctx, const tg_attention_fwd_args *a,
                               const attention_fwd_plan &p);
tg_status run_attention_fwd_96(const tg_context *ctx, const tg_attention_fwd_args *a,
                               const attention_fwd_plan &p);
tg_status run_attention_fwd_128(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_fwd_plan &p);
tg_status run_attention_fwd_192(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_fwd_plan &p);
tg_status run_attention_fwd_256(const tg_context *ctx, const tg_attention_fwd_args *a,
                                const attention_fwd_plan &p);

} // namespace TGI_CUDA_ENTRY

#endif
