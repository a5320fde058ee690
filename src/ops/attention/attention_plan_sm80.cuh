/** Attention forward by mma.sync: how attention_sm80.cu starts its kernels. */
#ifndef TGI_OPS_ATTENTION_PLAN_SM80_CUH
#define TGI_OPS_ATTENTION_PLAN_SM80_CUH

#include "ops/attention/attention_fwd_plan.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** Shared memory of a block: what 8.6, 8.9 and 12.0 have, what 8.0 has; 9.0 has more. */
constexpr int kLittleShared = 99 << 10, kMediumShared = 163 << 10;

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
