/** Sums and maxima over a warp and a block, in an order that depends on the block's size alone. */
#ifndef TGI_CUDA_REDUCE_CUH
#define TGI_CUDA_REDUCE_CUH

#include "cuda/launch.cuh"

#include <math_constants.h>

inline namespace TGI_CUDA_ENTRY
{

constexpr int kWarp = 32;

/** The second argument of __launch_bounds__: `wanted` blocks of `threads` on a multiprocessor, but
 * no more than fit. Compute capability 7.5 has 1024 threads on one; what is wanted fits on later
 * ones. */
constexpr int resident_blocks(int threads, int wanted)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  constexpr int kMost = 1024;
#else
  constexpr int kMost = 2048;
#endif
  return wanted * threads <= kMost ? wanted : kMost / threads;
}

constexpr unsigned kAllLanes = 0xffffffffu;

/** The sum over the warp, in every lane. */
template <typename T> __device__ __forceinline__ T warp_sum(T v)
{
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    v += __shfl_xor_sync(kAllLanes, v, step);
  }
  return v;
}

/** The maximum over the warp, in every lane; NaN counts as less than anything. */
__device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    v = fmaxf(v, __shfl_xor_sync(kAllLanes, v, step));
  }
  return v;
}

/**
 * The sums of N values over a block of at most 1024 threads (whole warps), in every thread. All
 * threads must come here. `scratch` is shared memory of N * 32 elements that the call owns until
 * the next barrier after it.
 */
template <int N, typename T> __device__ __forceinline__ void block_sum(T (&v)[N], T *scratch)
{
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
#pragma unroll
  for (int i = 0; i < N; i++) {
    v[i] = warp_sum(v[i]);
  }
  if (warps == 1) {
    return;
  }
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < N; i++) {
      scratch[i * kWarp + warp] = v[i];
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < N; i++) {
    v[i] = warp_sum(lane < warps ? scratch[i * kWarp + lane] : T(0));
  }
}

/** The maximum over a block; as block_sum, with scratch of 32 elements. */
__device__ __forceinline__ float block_max(float v, float *scratch)
{
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  v = warp_max(v);
  if (warps == 1) {
    return v;
  }
  if (lane == 0) {
    scratch[warp] = v;
  }
  __syncthreads();
  return warp_max(lane < warps ? scratch[lane] : -CUDART_INF_F);
}

} // namespace TGI_CUDA_ENTRY

#endif
