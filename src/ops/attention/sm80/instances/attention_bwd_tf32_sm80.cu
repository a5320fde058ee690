/* Attention backward by mma.sync, f32 by TF32 (attention_bwd_sm80.cu). All sizes of heads in one
 * file: it compiles in seconds, and is smaller than one for each. */
#include "ops/attention/sm80/attention_bwd_keys_sm80.cuh"
#include "ops/attention/sm80/attention_bwd_plan_sm80.cuh"
#include "ops/kernels.cuh"

namespace
{

/** dq, and dk with dv, as far as they are wanted. */
template <typename Queries, typename Keys>
tg_status run_tiles(const tg_context *ctx, const tg_attention_bwd_args *a,
                    const attention_bwd_plan &p)
{
  const bwd_tiles_job job = job_of(a, p);
  tg_status status =
      tgi_present(&a->dq) ? run_queries<Queries>(ctx, p.places * p.l.q_heads, job) : TG_OK;
  if (status == TG_OK && (tgi_present(&a->dk) || tgi_present(&a->dv))) {
    status = run_keys<Keys>(ctx, job);
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
    return run_tiles<bwd_queries_shape<tf32, 64, 64, 32, 2, 4, 2, 2>,
                     bwd_keys_shape<tf32, 64, 32, 2, 4, 1, 2, false>>(ctx, a, p);
  }
  return p.rows == 128 ? run_tiles<bwd_queries_shape<tf32, 128, 128, 32, 2, 4, 2, 1>,
                                   bwd_keys_shape<tf32, 128, 32, 1, 8, 1, 1, false>>(ctx, a, p)
                       : run_tiles<bwd_queries_shape<tf32, 128, 128, 16, 1, 4, 2, 1>,
                                   bwd_keys_shape<tf32, 128, 16, 1, 4, 1, 1, false>>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
