/** Attention backward on CUDA: what every entry does besides its tiles. It reads the lengths, and
 * computes the gradient of the sinks from lse and delta. */
#ifndef TGI_OPS_ATTENTION_BWD_CALLS_CUH
#define TGI_OPS_ATTENTION_BWD_CALLS_CUH

#include "ops/attention/cuda/attention_records.cuh"
#include "ops/kernels.cuh"

#include <math.h>

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kSinkThreads = 1024;

/** dsinks of a head: one block, in f64, over all rows of all sequences. It reads nothing of the
 * kernel launched before it, only of earlier ones, so it waits for that kernel at its end. */
__global__ void __launch_bounds__(kSinkThreads)
    attention_bwd_sinks_kernel(int64_t q_indices, int64_t q_heads, int64_t nq, const float *lse,
                               const float *delta, any_vector sinks, void *dsinks, tg_dtype dtype)
{
  __shared__ double scratch[kWarp];
  let_next_begin();
  for (int64_t head = blockIdx.x; head < q_heads; head += gridDim.x) {
    const float sink = sinks.at(head);
    double sum[1] = {0};
    for (int64_t index = 0; index < q_indices; index++) {
      const int64_t first = (index * q_heads + head) * nq;
#pragma unroll 4
      for (int64_t i = threadIdx.x; i < nq; i += kSinkThreads) {
        const float end = lse[first + i], term = delta[first + i];
        sum[0] -= end != -CUDART_INF_F ? (double)expf(sink - end) * (double)term : 0.0;
      }
    }
    block_sum(sum, scratch);
    if (threadIdx.x == 0) {
      const float total = (float)((double)any_vector{dsinks, dtype}.at(head) + sum[0]);
      if (dtype == TG_F32) {
        static_cast<float *>(dsinks)[head] = total;
      } else if (dtype == TG_F16) {
        static_cast<f16 *>(dsinks)[head] = from_f32<f16>(total);
      } else {
        static_cast<bf16 *>(dsinks)[head] = from_f32<bf16>(total);
      }
    }
    __syncthreads();
  }
  await_kernel_before();
}

/* ---- host ---- */

/** Writes a record for each sequence at the workspace's start. */
inline tg_status read_lengths(const tg_context *ctx, const tg_attention_bwd_args *a,
                              const tgi_attention_layout &l)
{
  const attention_sites sites = {
      FAULT_SITE(ctx, attention_bwd, cu_seqlens_q), FAULT_SITE(ctx, attention_bwd, cu_seqlens_k),
      FAULT_SITE(ctx, attention_bwd, key_start), FAULT_SITE(ctx, attention_bwd, key_count),
      FAULT_SITE(ctx, attention_bwd, key_count)}; /* no blocks here */
  return launch(ctx, attention_sequences_kernel, dim3(1), kRecordThreads, 0, l, sites,
                static_cast<tgi_attention_sequence *>(a->workspace));
}

/** Adds to dsinks, if wanted. `delta` has the layout of lse. */
inline tg_status add_to_sinks(const tg_context *ctx, const tg_attention_bwd_args *a,
                              const tgi_attention_layout &l, const float *delta)
{
  if (!tgi_present(&a->dsinks)) {
    return TG_OK;
  }
  return launch_next(ctx, attention_bwd_sinks_kernel, grid_of(l.q_heads), kSinkThreads, 0,
                     a->q.shape[0], l.q_heads, l.nq, static_cast<const float *>(a->lse.data), delta,
                     any_vector{a->sinks.data, a->sinks.dtype}, a->dsinks.data, a->dsinks.dtype);
}

/** The call as if the rows of every tensor were vectors, for the size of its workspace. */
inline tg_attention_bwd_args shapes_alone(tg_attention_bwd_args shapes)
{
  tg_tensor *const tensors[] = {&shapes.q,    &shapes.k,  &shapes.v,  &shapes.out,
                                &shapes.dout, &shapes.dq, &shapes.dk, &shapes.dv};
  for (tg_tensor *t : tensors) {
    forget_memory(t);
  }
  return shapes;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
