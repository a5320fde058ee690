/**
 * Softmax's forward of rows of which a thread has no more than two vectors: the row's largest
 * element is found first, so that an exponential is made once for an element and kept. Two
 * barriers, where sums of threads with largest elements of their own have one: less is left to do
 * after them, which is what few rows wait for.
 */
#ifndef TGI_OPS_SOFTMAX_SOFTMAX_SHORT_CUH
#define TGI_OPS_SOFTMAX_SOFTMAX_SHORT_CUH

#include "ops/softmax/softmax_exp.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** A launch has its arguments in memory that no multiprocessor has in its cache: 16-bit rows need
 * the first line of them, 48 bytes. */
template <typename T> struct short_rows {
  const T *x;
  T *y;
  int64_t x_step, y_step;
  int64_t rows;
  int32_t cols;
  float high; /* by.high */
  softmax_factors by;
};

/** The largest of a row's `warps`, a power of two, or their sum; `parts` has one of each. */
__device__ __forceinline__ float row_top(float top, int warps, float *parts)
{
  if (threadIdx.x % kWarp == 0) {
    parts[threadIdx.x / kWarp] = top;
  }
  __syncthreads();
  return warp_top(parts[threadIdx.x & (unsigned)(warps - 1)]);
}

template <typename Sum> __device__ __forceinline__ Sum row_sum(Sum sum, int warps, Sum *parts)
{
  if (threadIdx.x % kWarp == 0) {
    parts[threadIdx.x / kWarp] = sum;
  }
  __syncthreads();
  sum = parts[threadIdx.x & (unsigned)(warps - 1)];
  for (int step = warps / 2; step > 0; step /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, step);
  }
  return sum;
}

/** kWarpRow: a row for each warp; else a block for a row. A loop only where there are more rows
 * than a grid has places for. */
template <typename T, int kVectors, bool kAligned, bool kWarpRow>
__global__ void __launch_bounds__(kShortThreads) softmax_fwd_short_kernel(const short_rows<T> r)
{
  using sum_type = typename sum_of<T>::type;
  constexpr int kN = kLanes<T>;
  __shared__ float tops[kWarpRow ? 1 : kShortThreads / kWarp];
  __shared__ sum_type sums[kWarpRow ? 1 : kShortThreads / kWarp];
  const softmax_factors by = {sizeof(T) == 2 ? r.high : r.by.high, r.by.low, r.by.floor};
  const int threads = kWarpRow ? kWarp : (int)blockDim.x, warps = threads / kWarp;
  const int rows = kWarpRow ? (int)blockDim.x / kWarp : 1;
  const int first = (kWarpRow ? (int)threadIdx.x % kWarp : (int)threadIdx.x) * kN;
  for (int64_t row = (int64_t)blockIdx.x * rows + (kWarpRow ? (int)threadIdx.x / kWarp : 0);
       row < r.rows; row += (int64_t)gridDim.x * rows) {
    const T *const x = r.x + row * r.x_step;
    T *const y = r.y + row * r.y_step;
    uint4 raw[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; v++) {
      raw[v] = fetch_vector<kAligned>(x, first + v * threads * kN, r.cols);
    }
    float top = warp_top(largest_of<T, kVectors, false>(-FLT_MAX, [&](int i) { return raw[i]; }));
    if (!kWarpRow) {
      top = row_top(top, warps, tops);
    }
    float e[kVectors][kN], part[2] = {0.0f, 0.0f};
#pragma unroll
    for (int v = 0; v < kVectors; v++) {
      widen(e[v], raw[v], T());
#pragma unroll
      for (int i = 0; i < kN; i++) {
        e[v][i] = exponential<T>(by, e[v][i] - top);
        part[i % 2] += e[v][i];
      }
    }
    sum_type sum = warp_sum((sum_type)(part[0] + part[1]));
    if (!kWarpRow) {
      sum = row_sum(sum, warps, sums);
    }
    const float inverse = sizeof(T) > 2 ? 1.0f / (float)sum : reciprocal_flushed((float)sum);
#pragma unroll
    for (int v = 0; v < kVectors; v++) {
#pragma unroll
      for (int i = 0; i < kN; i++) {
        e[v][i] *= inverse;
      }
      put_vector<kAligned>(y, first + v * threads * kN, r.cols, e[v]);
    }
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
