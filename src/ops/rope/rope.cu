/* Rotary position embedding on CUDA.
 *
 * Method     rotate_heads.cuh; the backward is the same kernel with the transposed coefficients.
 * Work       Two heads of a token for each group of lanes.
 * Bound      Memory: reads q and k and writes them.
 */
#include "ops/kernels.cuh"
#include "ops/shared/rotation/rotate_heads_launch.cuh"

namespace
{

template <typename T>
rotate_job<T> job_of(const rotation &r, const tg_tensor *q, const tg_tensor *k,
                     const tg_tensor *q_out, const tg_tensor *k_out)
{
  rotate_job<T> job = {};
  job.side[0] = head_side_of<T>(q, q_out);
  job.side[1] = head_side_of<T>(k, k_out);
  job.r = r;
  job.seq = q->shape[1];
  job.tokens = q->shape[0] * q->shape[1];
  return job;
}

bool all_aligned(const tg_tensor *q, const tg_tensor *k, const tg_tensor *q_out,
                 const tg_tensor *k_out, const tg_tensor *cos, const tg_tensor *sin)
{
  return slots_aligned(q) && slots_aligned(k) && slots_aligned(q_out) && slots_aligned(k_out) &&
         slots_aligned(cos) && slots_aligned(sin);
}

rotation rotation_fwd(const tg_rope_fwd_args *a)
{
  return rotation_of(&a->cos, &a->sin, a->q.shape[3], a->rotary_dim, a->position_offset,
                     a->pairing);
}

rotation rotation_bwd(const tg_rope_bwd_args *a)
{
  return rotation_of(&a->cos, &a->sin, a->dq_out.shape[3], a->rotary_dim, a->position_offset,
                     a->pairing);
}

} // namespace

extern "C" tg_status TGI_KERNEL(rope_fwd)(const tg_context *ctx, const tg_rope_fwd_args *a)
{
  const bool aligned = all_aligned(&a->q, &a->k, &a->q_out, &a->k_out, &a->cos, &a->sin);
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->q.dtype, T,
               const rotate_job<T> job =
                   job_of<T>(rotation_fwd(a), &a->q, &a->k, &a->q_out, &a->k_out);
               status = rotate_heads_rounding<false>(ctx, job, a->rounding, aligned));
  return status;
}

extern "C" tg_status TGI_KERNEL(rope_bwd)(const tg_context *ctx, const tg_rope_bwd_args *a)
{
  const bool aligned = all_aligned(&a->dq_out, &a->dk_out, &a->dq, &a->dk, &a->cos, &a->sin);
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->dq_out.dtype, T,
               const rotate_job<T> job =
                   job_of<T>(rotation_bwd(a), &a->dq_out, &a->dk_out, &a->dq, &a->dk);
               status = rotate_heads<kRotateBack, false>(ctx, job, aligned));
  return status;
}

extern "C" void TGI_PLAN(rope_fwd)(const tg_context *, const tg_rope_fwd_args *a, char *text,
                                   size_t bytes)
{
  describe_rotation(&a->q, rotation_fwd(a), text, bytes);
}

extern "C" void TGI_PLAN(rope_bwd)(const tg_context *, const tg_rope_bwd_args *a, char *text,
                                   size_t bytes)
{
  describe_rotation(&a->dq_out, rotation_bwd(a), text, bytes);
}
