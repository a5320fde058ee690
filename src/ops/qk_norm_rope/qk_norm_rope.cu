/* RMSNorm of heads, then rotary position embedding, on CUDA: the forward.
 *
 * Method     The kernels of rope/rotate_heads.cuh with a norm before the rotation. The lanes of a
 *            head reduce its sum of squares by shuffles while its elements stay in registers.
 * Work       A group of lanes processes two heads of a token.
 * Bound      Memory bandwidth: q and k are read, q_out and k_out are written.
 * Paper      Zhang & Sennrich 2019, arXiv:1910.07467; Su et al. 2021, arXiv:2104.09864.
 */
#include "ops/kernels.cuh"
#include "ops/shared/rotation/rotate_heads_launch.cuh"

namespace
{

rotation rotation_of_args(const tg_qk_norm_rope_fwd_args *a)
{
  return rotation_of(&a->cos, &a->sin, a->q.shape[3], a->rotary_dim, a->position_offset,
                     a->pairing);
}

bool all_aligned(const tg_qk_norm_rope_fwd_args *a)
{
  return slots_aligned(&a->q) && slots_aligned(&a->k) && slots_aligned(&a->q_out) &&
         slots_aligned(&a->k_out) && slots_aligned(&a->q_weight) && slots_aligned(&a->k_weight) &&
         slots_aligned(&a->cos) && slots_aligned(&a->sin);
}

template <typename T> tg_status forward(const tg_context *ctx, const tg_qk_norm_rope_fwd_args *a)
{
  rotate_job<T> job = {};
  job.side[0] = head_side_of<T>(&a->q, &a->q_out);
  job.side[1] = head_side_of<T>(&a->k, &a->k_out);
  job.side[0].weight = a->q_weight.data;
  job.side[1].weight = a->k_weight.data;
  job.side[0].rstd = static_cast<float *>(a->q_rstd.data);
  job.side[1].rstd = static_cast<float *>(a->k_rstd.data);
  job.r = rotation_of_args(a);
  job.seq = a->q.shape[1];
  job.tokens = a->q.shape[0] * a->q.shape[1];
  job.f32_weights = a->q_weight.dtype == TG_F32;
  job.eps = a->eps;
  return rotate_heads_rounding<true>(ctx, job, a->rounding, all_aligned(a));
}

} // namespace

extern "C" tg_status TGI_KERNEL(qk_norm_rope_fwd)(const tg_context *ctx,
                                                  const tg_qk_norm_rope_fwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->q.dtype, T, status = forward<T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(qk_norm_rope_fwd)(const tg_context *, const tg_qk_norm_rope_fwd_args *a,
                                           char *text, size_t bytes)
{
  describe_rotation(&a->q, rotation_of_args(a), text, bytes);
}
