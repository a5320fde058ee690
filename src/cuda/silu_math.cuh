/** SiLU and its slope in f32; the formulas of the CPU's cpu/silu_math.h with the device's exp. */
#ifndef TGI_CUDA_SILU_MATH_CUH
#define TGI_CUDA_SILU_MATH_CUH

#include "cuda/launch.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** x / (1 + exp(-x)); the limits at the infinities. */
__device__ __forceinline__ float silu(float x)
{
  /* Finite below: infinity over infinity is no limit. NaN passes through the comparison. */
  const float bounded = x < -0x1p126f ? -0x1p126f : x;
  return bounded / (1.0f + expf(-x));
}

/** The slope s + x s (1 - s), and silu(x) as *value. */
__device__ __forceinline__ float silu_slope(float x, float *value)
{
  /* Beyond 87 nothing changes by more than 2^-118; NaN passes. */
  const float c = x < -87.0f ? -87.0f : x > 87.0f ? 87.0f : x;
  const float e = expf(-c), d = 1.0f + e, s = 1.0f / d;
  *value = x > 87.0f ? x : c / d;
  return fmaf(c * s, e * s, s);
}

} // namespace TGI_CUDA_ENTRY

#endif
