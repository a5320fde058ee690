/* Top-k router on CUDA: the backward.
 *
 * Method     A warp for a token: what the row's exponentials are relative to, the dot
 *            products, then each lane its experts' gradients. A selected expert finds itself
 *            among the k indices.
 * Work       8 tokens a block.
 * Bound      Reads logits and writes dlogits; for short rows latency of the reductions.
 */
#include "cuda/fault.cuh"
#include "ops/topk_router/router_warp.cuh"

namespace
{

template <typename T> struct bwd_job {
  weight_rows<T> dweights;
  const float *dprob_sum; /* NULL: none */
  const T *logits;
  T *dlogits;
  int_list indices, token_mask;
  int64_t tokens, step, dlogits_step, indices_step;
  int experts, k;
  bool over_all; /* weights are relative to the sum over all experts */
  fault_site bad_index;
};

/* What weights and probabilities are relative to, and the dot products of the contract. */
struct row_sums {
  float top, largest;       /* of the logits that the weights are relative to; of all */
  float of_weights, of_all; /* 1 / the sum of these logits' exponentials */
  float dot, auxiliary;
  bool counted;
};

/* Whether all indices of a token name experts; records those that do not. */
template <typename T> __device__ bool knows_experts(const bwd_job<T> &job, int64_t t)
{
  bool known = true;
  for (int j = threadIdx.x % kWarp; j < job.k; j += kWarp) {
    const int64_t e = int_at(job.indices, t * job.indices_step + j);
    if (e < 0 || e >= job.experts) {
      record_fault(job.bad_index, t * job.k + j, e, 0, job.experts - 1);
      known = false;
    }
  }
  return __all_sync(kAllLanes, known);
}

template <typename T>
__device__ __forceinline__ float selected_logit(const bwd_job<T> &job, const T *row, int64_t t,
                                                int j)
{
  return to_f32(row[int_at(job.indices, t * job.indices_step + j)]);
}

__device__ __forceinline__ float weight_of(const row_sums &s, float logit)
{
  return expf(logit - s.top) * s.of_weights;
}

__device__ __forceinline__ float probability_of(const row_sums &s, float logit)
{
  return expf(logit - s.largest) * s.of_all;
}

template <typename T> __device__ row_sums sum_row(const bwd_job<T> &job, const T *row, int64_t t)
{
  const int lane = threadIdx.x % kWarp;
  row_sums s = {};
  s.counted = job.dprob_sum && is_counted(job.token_mask, t);
  s.largest = s.top = largest_logit(row, job.experts);
  if (job.over_all || s.counted) {
    s.of_all = s.of_weights = (float)(1 / sum_exponentials(row, job.experts, s.largest));
  }
  if (!job.over_all) {
    float most = -CUDART_INF_F;
    for (int j = lane; j < job.k; j += kWarp) {
      most = fmaxf(most, selected_logit(job, row, t, j));
    }
    s.top = isnan(s.largest) ? CUDART_NAN_F : warp_max(most);
    double sum = 0;
    for (int j = lane; j < job.k; j += kWarp) {
      sum += (double)expf(selected_logit(job, row, t, j) - s.top);
    }
    s.of_weights = (float)(1 / warp_sum(sum));
  }
  double dot = 0, auxiliary = 0;
  for (int j = lane; j < job.k; j += kWarp) {
    const float w = weight_of(s, selected_logit(job, row, t, j));
    dot += (double)w * (double)job.dweights.at(t, j);
  }
  for (int e = lane; e < job.experts && s.counted; e += kWarp) {
    auxiliary += (double)probability_of(s, to_f32(row[e])) * (double)job.dprob_sum[e];
  }
  s.dot = (float)warp_sum(dot);
  s.auxiliary = (float)warp_sum(auxiliary);
  return s;
}

template <typename T>
__device__ float gradient(const bwd_job<T> &job, const row_sums &s, float logit, int64_t t, int e)
{
  float d = 0;
  for (int j = 0; j < job.k; j++) {
    if (int_at(job.indices, t * job.indices_step + j) == e) {
      const float dw = job.dweights.at(t, j);
      d += weight_of(s, logit) * (job.over_all ? dw : dw - s.dot);
    }
  }
  if (job.over_all) {
    d -= probability_of(s, logit) * s.dot;
  }
  if (s.counted) {
    d += probability_of(s, logit) * (job.dprob_sum[e] - s.auxiliary);
  }
  return d;
}

template <typename T>
__global__ void __launch_bounds__(kRouterThreads)
    topk_router_bwd_kernel(const __grid_constant__ bwd_job<T> job)
{
  const int64_t stride = (int64_t)gridDim.x * kRouterWarps;
  const int lane = threadIdx.x % kWarp;
  for (int64_t t = (int64_t)blockIdx.x * kRouterWarps + threadIdx.x / kWarp; t < job.tokens;
       t += stride) {
    const T *row = job.logits + t * job.step;
    T *to = job.dlogits + t * job.dlogits_step;
    const bool known = knows_experts(job, t);
    const row_sums s = known ? sum_row(job, row, t) : row_sums{};
    for (int e = lane; e < job.experts; e += kWarp) {
      to[e] = from_f32<T>(known ? gradient(job, s, to_f32(row[e]), t, e) : CUDART_NAN_F);
    }
  }
}

template <typename T> tg_status backward(const tg_context *ctx, const tg_topk_router_bwd_args *a)
{
  bwd_job<T> job = {};
  job.dweights = weight_rows_of<T>(&a->dweights);
  job.dprob_sum = static_cast<const float *>(a->dprob_sum.data);
  job.logits = static_cast<const T *>(a->logits.data);
  job.dlogits = static_cast<T *>(a->dlogits.data);
  job.indices = int_list_of(&a->indices);
  job.token_mask = int_list_of(&a->token_mask);
  job.tokens = a->logits.shape[0];
  job.step = tgi_stride(&a->logits, 0);
  job.dlogits_step = tgi_stride(&a->dlogits, 0);
  job.indices_step = tgi_stride(&a->indices, 0);
  job.experts = (int)a->logits.shape[1];
  job.k = (int)a->indices.shape[1];
  job.over_all = a->scoring == TG_ROUTER_ALL;
  job.bad_index = FAULT_SITE(ctx, topk_router_bwd, indices);
  const dim3 grid = grid_of(divide_up(job.tokens, (int64_t)kRouterWarps));
  return launch(ctx, topk_router_bwd_kernel<T>, grid, kRouterThreads, 0, job);
}

} // namespace

extern "C" size_t TGI_WORKSPACE(topk_router_bwd)(const tg_context *,
                                                 const tg_topk_router_bwd_args *)
{
  return 0;
}

extern "C" tg_status TGI_KERNEL(topk_router_bwd)(const tg_context *ctx,
                                                 const tg_topk_router_bwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->logits.dtype, T, status = backward<T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(topk_router_bwd)(const tg_context *, const tg_topk_router_bwd_args *,
                                          char *text, size_t bytes)
{
  snprintf(text, bytes, "a warp a token, %d a block", kRouterWarps);
}
