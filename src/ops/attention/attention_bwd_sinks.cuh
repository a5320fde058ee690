/** The gradient of attention's sinks, from lse and delta. */
#ifndef TGI_OPS_ATTENTION_BWD_SINKS_CUH
#define TGI_OPS_ATTENTION_BWD_SINKS_CUH

#include "ops/attention/attention_sequences.cuh"

#include <math.h>

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kSinkThreads = 256;

/** dsinks of a head: a block, in f64, over all rows of all sequences. */
__global__ void __launch_bounds__(kSinkThreads)
    attention_bwd_sinks_kernel(int64_t q_indices, int64_t q_heads, int64_t nq, const float *lse,
                               const float *delta, any_vector sinks, void *dsinks, tg_dtype dtype)
{
  __shared__ double scratch[kWarp];
  for (int64_t head = blockIdx.x; head < q_heads; head += gridDim.x) {
    const float sink = sinks.at(head);
    double sum[1] = {0};
    for (int64_t i = threadIdx.x; i < q_indices * nq; i += kSinkThreads) {
      const int64_t at = (i / nq * q_heads + head) * nq + i % nq;
      if (lse[at] != -CUDART_INF_F) {
        sum[0] -= (double)expf(sink - lse[at]) * (double)delta[at];
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
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
