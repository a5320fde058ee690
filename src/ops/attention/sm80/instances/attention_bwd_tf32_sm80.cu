/* Attention backward by mma.sync (attention_bwd_sm80.cu): f32 by TF32. All head sizes are in one
 * file: it compiles in seconds, and is smaller than one file each. */
#include "ops/attention/sm80/attention_bwd_keys_sm80.cuh"
#include "ops/attention/sm80/attention_bwd_plan_sm80.cuh"
#include "ops/kernels.cuh"

namespace
{

/** dq, and dk with dv, as far as they are wanted. */
template <typename Dq, typename Dkv>
tg_status run_tiles(const tg_context *ctx, const tg_attention_bwd_args *a,
                    const attention_bwd_plan &p)
{
  const bwd_tiles_job job = job_of(a, p);
  tg_status status =
      tgi_present(&a->dq) ? run_queries<tf32, Dq>(ctx, p.places * p.l.q_heads, job) : TG_OK;
  if (status == TG_OK && (tgi_present(&a->dk) || tgi_present(&a->dv))) {
    status = run_keys<tf32, Dkv>(ctx, job);
  }
  return status;
}

} // namespace

inline namespace TGI_CUDA_ENTRY
{

tg_status run_attention_bwd_tf32(const tg_context *ctx, const tg_attention_bwd_args *a,
                                 const attention_bwd_plan &p)
{
  if (p.qk == 64) {
    return run_tiles<dq_d64_tf32, dkv_d64_tf32>(ctx, a, p);
  }
  return p.rows == 128 ? run_tiles<dq_d128_tf32_large, dkv_d128_tf32_large>(ctx, a, p)
                       : run_tiles<dq_d128_tf32, dkv_d128_tf32>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
