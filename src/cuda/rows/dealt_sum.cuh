/**
 * Sums of a few values over the lanes of a row, each lane left with one of them: the first steps
 * halve the values with the lanes, so that N sums take few more exchanges than one, and what
 * follows from a sum is found once in the place of N times. The bits are those of row_sum.
 */
#ifndef TGI_CUDA_DEALT_SUM_CUH
#define TGI_CUDA_DEALT_SUM_CUH

#include "cuda/reduce.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** Of the kLanesOf lanes of a row, lane t is left with the sum of v[t / (kLanesOf / N)]; N and
 * kLanesOf are powers of two. All lanes of the warp must come here. */
template <int kLanesOf, int N, int kStep = kLanesOf / 2>
__device__ __forceinline__ float dealt_sum(const float (&v)[N], int lane)
{
  static_assert(2 * kStep >= N, "a lane for each sum");
  if constexpr (N == 1) {
    float sum = v[0];
#pragma unroll
    for (int step = kStep; step > 0; step /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, step);
    }
    return sum;
  } else {
    float half[N / 2];
    const bool upper = lane & kStep;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
      const float kept = upper ? v[N / 2 + i] : v[i], given = upper ? v[i] : v[N / 2 + i];
      half[i] = kept + __shfl_xor_sync(kAllLanes, given, kStep);
    }
    return dealt_sum<kLanesOf, N / 2, kStep / 2>(half, lane);
  }
}

/** The reverse: all[i] is what lanes i * (kLanesOf / N) on of the row have in v. */
template <int kLanesOf, int N>
__device__ __forceinline__ void collect(float (&all)[N], float v, int lane)
{
  if constexpr (N == 2) {
    const bool upper = lane & (kLanesOf / 2);
    const float other = __shfl_xor_sync(kAllLanes, v, kLanesOf / 2);
    all[0] = upper ? other : v;
    all[1] = upper ? v : other;
  } else {
    const int first = lane & ~(kLanesOf - 1);
#pragma unroll
    for (int i = 0; i < N; i++) {
      all[i] = __shfl_sync(kAllLanes, v, first + i * (kLanesOf / N));
    }
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
