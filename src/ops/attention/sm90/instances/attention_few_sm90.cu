/* Attention forward of one query a sequence on Hopper (attention_few_sm90.cuh): the instances. */
#include "ops/attention/sm90/attention_few_sm90.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

tg_status run_few_clusters(const tg_context *ctx, const tg_attention_fwd_args *a,
                           const few_cluster_plan &p)
{
  const bool half = a->q.dtype == TG_F16;
  if (p.l.head_dim == 64) {
    return half ? run_cluster_tiles<f16, 64>(ctx, a, p) : run_cluster_tiles<bf16, 64>(ctx, a, p);
  }
  return half ? run_cluster_tiles<f16, 128>(ctx, a, p) : run_cluster_tiles<bf16, 128>(ctx, a, p);
}

} // namespace TGI_CUDA_ENTRY
