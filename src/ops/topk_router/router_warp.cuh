/** Rows of the router on CUDA: a warp reads one, lane by lane. For the forward and the backward. */
#ifndef TGI_OPS_ROUTER_WARP_CUH
#define TGI_OPS_ROUTER_WARP_CUH

#include "cuda/int_list.cuh"
#include "cuda/reduce.cuh"
#include "cuda/vec.cuh"
#include "ops/kernels.cuh"

#include <math_constants.h>

inline namespace TGI_CUDA_ENTRY
{

constexpr int kRouterThreads = 256, kRouterWarps = kRouterThreads / kWarp;

/** Rows of weights or of their gradients: f32, or the dtype of the logits. */
template <typename T> struct weight_rows {
  void *data;
  int64_t step;
  bool wide; /* f32 */

  __device__ __forceinline__ float at(int64_t t, int j) const
  {
    const int64_t i = t * step + j;
    return wide ? static_cast<const float *>(data)[i] : to_f32(static_cast<const T *>(data)[i]);
  }

  __device__ __forceinline__ void put(int64_t t, int j, float v) const
  {
    const int64_t i = t * step + j;
    if (wide) {
      static_cast<float *>(data)[i] = v;
    } else {
      static_cast<T *>(data)[i] = from_f32<T>(v);
    }
  }
};

template <typename T> weight_rows<T> weight_rows_of(const tg_tensor *t)
{
  return {t->data, tgi_stride(t, 0), t->dtype == TG_F32};
}

/** The largest logit of a row, in every lane; NaN if one is. */
template <typename T> __device__ __forceinline__ float largest_logit(const T *row, int experts)
{
  float most = -CUDART_INF_F;
  bool odd = false;
  for (int e = threadIdx.x % kWarp; e < experts; e += kWarp) {
    const float x = to_f32(row[e]);
    odd = odd || isnan(x);
    most = fmaxf(most, x);
  }
  most = warp_max(most);
  return __any_sync(kAllLanes, odd) ? CUDART_NAN_F : most;
}

/** The sum of e^(logit - largest) over a row, in every lane. */
template <typename T>
__device__ __forceinline__ double sum_exponentials(const T *row, int experts, float largest)
{
  double sum = 0;
  for (int e = threadIdx.x % kWarp; e < experts; e += kWarp) {
    sum += (double)expf(to_f32(row[e]) - largest);
  }
  return warp_sum(sum);
}

__device__ __forceinline__ bool is_counted(int_list mask, int64_t t)
{
  return !mask.data || int_at(mask, t) != 0;
}

} // namespace TGI_CUDA_ENTRY

#endif
