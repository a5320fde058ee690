/** How a call's heads are shared out to the kernels of rotate_heads.cuh, and their launch. */
#ifndef TGI_OPS_ROTATE_HEADS_LAUNCH_CUH
#define TGI_OPS_ROTATE_HEADS_LAUNCH_CUH

#include "ops/shared/rotation/rotate_heads.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** Lays the work out for vectors of n elements; 0: the heads have no slots. */
template <typename T> void plan_rotation(rotate_job<T> *job, int n, bool normed)
{
  const int64_t heads = job->side[0].heads + job->side[1].heads;
  job->by_seq = divider_of(job->seq, job->tokens);
  if (n == 0) {
    job->blocks = divide_up(job->tokens * heads, kRotateThreads / kWarp);
    return;
  }
  job->slots = (int)slots_of(job->r, n);
  job->lanes = lanes_of(job->slots, normed);
  job->groups_per_block = kSlotThreads / job->lanes;
  job->inverse_dim = 1 / (float)job->r.head_dim;
  job->blocks = 0;
  for (int side = 0; side < 2; side++) {
    const int64_t groups = divide_up(job->side[side].heads, kRotateHeads);
    job->first_blocks = job->blocks;
    job->by_groups[side] = divider_of(groups, job->tokens * groups + kSlotThreads);
    job->blocks += divide_up(job->tokens * groups, job->groups_per_block);
  }
  job->by_seq = divider_of(job->seq, job->tokens + kSlotThreads);
}

template <typename T, typename TT, int N, int kMode, bool kNormed, bool kAligned, bool kPacked>
tg_status launch_slots(const tg_context *ctx, rotate_job<T> job)
{
  plan_rotation(&job, N, kNormed);
  const dim3 grid = grid_of(job.blocks);
  return job.r.interleaved
             ? launch(ctx, rotate_heads_kernel<T, TT, N, true, kMode, kNormed, kAligned, kPacked>,
                      grid, kSlotThreads, 0, job)
             : launch(ctx, rotate_heads_kernel<T, TT, N, false, kMode, kNormed, kAligned, kPacked>,
                      grid, kSlotThreads, 0, job);
}

template <int kMode, bool kNormed, typename T>
tg_status rotate_heads(const tg_context *ctx, rotate_job<T> job, bool aligned)
{
  constexpr int kWide = kSlotWide<T>, kSmall = kSlotLanes;
  if (!cut_in_slots(job.r)) {
    plan_rotation(&job, 0, kNormed);
    return launch(ctx, rotate_heads_pairs_kernel<T, kMode, kNormed>, grid_of(job.blocks),
                  kRotateThreads, 0, job);
  }
  constexpr bool kPacks = kMode == kRotateHf;
  if (aligned && (kWide == kSmall || slots_wide(job.r))) {
    return job.r.f32 ? launch_slots<T, float, kWide, kMode, kNormed, true, false>(ctx, job)
           : kNormed && job.f32_weights
               ? launch_slots<T, T, kWide, kMode, kNormed, true, false>(ctx, job)
               : launch_slots<T, T, kWide, kMode, kNormed, true, kPacks>(ctx, job);
  }
  return job.r.f32 ? launch_slots<T, float, kSmall, kMode, kNormed, false, false>(ctx, job)
                   : launch_slots<T, T, kSmall, kMode, kNormed, false, false>(ctx, job);
}

/** With f32 both roundings give the same bits. */
template <bool kNormed, typename T>
tg_status rotate_heads_rounding(const tg_context *ctx, const rotate_job<T> &job,
                                tg_rounding rounding, bool aligned)
{
  constexpr int kSteps = sizeof(T) == 2 ? kRotateHf : kRotateOnce;
  return rounding == TG_ROUNDING_HF ? rotate_heads<kSteps, kNormed>(ctx, job, aligned)
                                    : rotate_heads<kRotateOnce, kNormed>(ctx, job, aligned);
}

inline void describe_rotation(const tg_tensor *q, const rotation &r, char *text, size_t bytes)
{
  const bool cut = cut_in_slots(r);
  snprintf(text, bytes,
           cut ? "%lld tokens, %d heads a thread, %d threads a block"
               : "%lld tokens, a warp for a head of %d in blocks of %d threads",
           (long long)(q->shape[0] * q->shape[1]), cut ? kRotateHeads : (int)q->shape[3],
           cut ? kSlotThreads : kRotateThreads);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
