/** An integer times a scale of few bits, rounded to f32 as a product of f64 would be. */
#ifndef TGI_CUDA_SCALE_INTEGER_CUH
#define TGI_CUDA_SCALE_INTEGER_CUH

#include "cuda/launch.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** f32(f64(n) * f64(t)) for t of at most 17 significant bits and below 2^122, and |n| < 2^31 - 64:
 * n is a multiple of 128 and a rest of at most 64, whose product with t is exact. */
__device__ __forceinline__ float scale_integer(int n, float t)
{
  const int up = n + 64;
  const float rest = __int_as_float((up & 127) | 0x4b000000) - 8388672.0f; /* 2^23 + 64 */
  return __fmaf_rn((float)(up & ~127), t, rest * t);
}

} // namespace TGI_CUDA_ENTRY

#endif
