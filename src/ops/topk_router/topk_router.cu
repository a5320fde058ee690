/* Top-k router on CUDA: the forward. topk_router_bwd.cu has the backward.
 *
 * Method     A warp for a token: k rounds, each of which finds the best expert that is left
 *            (router_select.cuh). Counts and probabilities: a second kernel adds them up for
 *            each group of 64 tokens, a thread for an expert; a third one adds up the groups, a
 *            warp for an expert. No atomics.
 * Work       8 tokens a block; a group a block; 8 experts a block.
 * Bound      Latency of the rounds' votes; the logits are read once from memory.
 */
#include "ops/topk_router/router_select.cuh"

namespace
{

constexpr int kGroup = 64; /* tokens */

template <typename T> struct fwd_job {
  const T *logits;
  int_list token_mask, indices;
  weight_rows<T> weights;
  int64_t tokens, groups, step, indices_step;
  int experts, k;
  bool over_all; /* weights are relative to the sum over all experts */
  int32_t *group_counts, *counts;
  float *group_sums, *prob_sum;
};

/* ---- selection ---- */

/* Lane j % 32 keeps place j: it writes the index here and the weight later. */
template <typename T, int kPer> __device__ void route_token(const fwd_job<T> &job, int64_t t)
{
  const int lane = threadIdx.x % kWarp;
  const T *row = job.logits + t * job.step;
  const float largest = largest_logit(row, job.experts);
  if (isnan(largest)) {
    for (int j = lane; j < job.k; j += kWarp) {
      put_int(job.indices, t * job.indices_step + j, j);
      job.weights.put(t, j, CUDART_NAN_F);
    }
    return;
  }
  double sum = job.over_all ? sum_exponentials(row, job.experts, largest) : 0;
  typename logits_by<T, kPer>::type left(row, job.experts);
  for (int j = 0; j < job.k; j++) {
    const candidate best = left.take();
    sum += job.over_all ? 0 : (double)expf(best.logit - largest);
    if (lane == j % kWarp) {
      put_int(job.indices, t * job.indices_step + j, best.expert);
    }
  }
  const float by = (float)(1 / sum);
  for (int j = lane; j < job.k; j += kWarp) {
    const float x = to_f32(row[int_at(job.indices, t * job.indices_step + j)]);
    job.weights.put(t, j, expf(x - largest) * by);
  }
}

/* 6 blocks: left to itself, the compiler spills for 8 at compute capability 8.0. */
template <typename T, int kPer>
__global__ void __launch_bounds__(kRouterThreads, resident_blocks(kRouterThreads, 6))
    topk_router_fwd_kernel(const __grid_constant__ fwd_job<T> job)
{
  const int64_t stride = (int64_t)gridDim.x * kRouterWarps;
  for (int64_t t = (int64_t)blockIdx.x * kRouterWarps + threadIdx.x / kWarp; t < job.tokens;
       t += stride) {
    route_token<T, kPer>(job, t);
  }
}

/* ---- counts and probabilities ---- */

/* What the probabilities of a group's tokens are relative to. */
struct group_memory {
  float largest[kGroup], inverse[kGroup]; /* inverse: of the sum of exponentials */
  bool counted[kGroup];
};

template <typename T>
__device__ void add_group(const fwd_job<T> &job, int64_t g, int tokens, const group_memory *m)
{
  for (int e = threadIdx.x; e < job.experts; e += kRouterThreads) {
    float sum = 0;
    int32_t count = 0;
    for (int i = 0; i < tokens; i++) {
      const int64_t t = g * kGroup + i;
      if (m->counted[i]) {
        sum += expf(to_f32(job.logits[t * job.step + e]) - m->largest[i]) * m->inverse[i];
        for (int j = 0; j < job.k; j++) {
          count += int_at(job.indices, t * job.indices_step + j) == e;
        }
      }
    }
    job.group_counts[g * job.experts + e] = count;
    job.group_sums[g * job.experts + e] = sum;
  }
}

template <typename T>
__global__ void __launch_bounds__(kRouterThreads)
    topk_router_fwd_group_kernel(const __grid_constant__ fwd_job<T> job)
{
  __shared__ group_memory m;
  for (int64_t g = blockIdx.x; g < job.groups; g += gridDim.x) {
    const int64_t left = job.tokens - g * kGroup;
    const int tokens = left < kGroup ? (int)left : kGroup;
    for (int i = threadIdx.x / kWarp; i < tokens; i += kRouterWarps) {
      const T *row = job.logits + (g * kGroup + i) * job.step;
      const float largest = largest_logit(row, job.experts);
      const double sum = sum_exponentials(row, job.experts, largest);
      if (threadIdx.x % kWarp == 0) {
        m.largest[i] = largest;
        m.inverse[i] = (float)(1 / sum);
        m.counted[i] = is_counted(job.token_mask, g * kGroup + i);
      }
    }
    __syncthreads();
    add_group(job, g, tokens, &m);
    __syncthreads(); /* the next group overwrites the memory */
  }
}

template <typename T>
__global__ void __launch_bounds__(kRouterThreads)
    topk_router_fwd_total_kernel(const __grid_constant__ fwd_job<T> job)
{
  const int64_t stride = (int64_t)gridDim.x * kRouterWarps;
  const int lane = threadIdx.x % kWarp;
  for (int64_t e = (int64_t)blockIdx.x * kRouterWarps + threadIdx.x / kWarp; e < job.experts;
       e += stride) {
    double sum = 0;
    int32_t count = 0;
    for (int64_t g = lane; g < job.groups; g += kWarp) {
      sum += (double)job.group_sums[g * job.experts + e];
      count += job.group_counts[g * job.experts + e];
    }
    sum = warp_sum(sum);
    count = warp_sum(count);
    if (lane == 0 && job.prob_sum) {
      job.prob_sum[e] = (float)sum;
    }
    if (lane == 0 && job.counts) {
      job.counts[e] = count;
    }
  }
}

/* ---- the call ---- */

bool adds_up(const tg_topk_router_fwd_args *a)
{
  return tgi_present(&a->counts) || tgi_present(&a->prob_sum);
}

int64_t groups_of(const tg_topk_router_fwd_args *a)
{
  return divide_up(a->logits.shape[0], (int64_t)kGroup);
}

template <typename T> tg_status forward(const tg_context *ctx, const tg_topk_router_fwd_args *a)
{
  fwd_job<T> job = {};
  job.logits = static_cast<const T *>(a->logits.data);
  job.token_mask = int_list_of(&a->token_mask);
  job.indices = int_list_of(&a->indices);
  job.weights = weight_rows_of<T>(&a->weights);
  job.tokens = a->logits.shape[0];
  job.groups = groups_of(a);
  job.step = tgi_stride(&a->logits, 0);
  job.indices_step = tgi_stride(&a->indices, 0);
  job.experts = (int)a->logits.shape[1];
  job.k = (int)a->indices.shape[1];
  job.over_all = a->scoring == TG_ROUTER_ALL;
  job.group_counts = static_cast<int32_t *>(a->workspace);
  job.group_sums = reinterpret_cast<float *>(job.group_counts + job.groups * job.experts);
  job.counts = static_cast<int32_t *>(a->counts.data);
  job.prob_sum = static_cast<float *>(a->prob_sum.data);
  const dim3 tokens = grid_of(divide_up(job.tokens, (int64_t)kRouterWarps));
  const auto route = job.experts <= kWarp       ? topk_router_fwd_kernel<T, 1>
                     : job.experts <= 4 * kWarp ? topk_router_fwd_kernel<T, 4>
                                                : topk_router_fwd_kernel<T, 0>;
  tg_status status = launch(ctx, route, tokens, kRouterThreads, 0, job);
  if (status == TG_OK && adds_up(a)) {
    status =
        launch(ctx, topk_router_fwd_group_kernel<T>, grid_of(job.groups), kRouterThreads, 0, job);
  }
  if (status == TG_OK && adds_up(a)) {
    const dim3 experts = grid_of(divide_up((int64_t)job.experts, (int64_t)kRouterWarps));
    status = launch(ctx, topk_router_fwd_total_kernel<T>, experts, kRouterThreads, 0, job);
  }
  return status;
}

} // namespace

extern "C" size_t TGI_WORKSPACE(topk_router_fwd)(const tg_context *,
                                                 const tg_topk_router_fwd_args *a)
{
  return adds_up(a) ? (size_t)(groups_of(a) * a->logits.shape[1]) * 8 : 0;
}

extern "C" tg_status TGI_KERNEL(topk_router_fwd)(const tg_context *ctx,
                                                 const tg_topk_router_fwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->logits.dtype, T, status = forward<T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(topk_router_fwd)(const tg_context *, const tg_topk_router_fwd_args *a,
                                          char *text, size_t bytes)
{
  snprintf(text, bytes, "a warp a token, %d a block%s", kRouterWarps,
           adds_up(a) ? "; groups of 64 tokens" : "");
}
