/** Powers of two, reciprocals and inverse roots by the device's unit for them. */
#ifndef TGI_CUDA_EXP2_CUH
#define TGI_CUDA_EXP2_CUH

#include "cuda/launch.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** 2^v within 2^-22 of it; 0 below 2^-126 and at -infinity, NaN for NaN. */
__device__ __forceinline__ float exp2_flushed(float v)
{
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(v));
  return power;
}

/** 1 / v within 2^-23 of it; 0 above 2^126. */
__device__ __forceinline__ float reciprocal_flushed(float v)
{
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(v));
  return inverse;
}

/** 1 / sqrt(v) within 2^-22 of it; infinity below 2^-126, 0 for infinity, NaN below -2^-126. */
__device__ __forceinline__ float inverse_root_flushed(float v)
{
  float inverse;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(v));
  return inverse;
}

/** 2^(a b) for a finite product, whose rounding is made up for. */
__device__ __forceinline__ float exp2_of_product(float a, float b)
{
  const float product = a * b, rest = fmaf(a, b, -product), power = exp2_flushed(product);
  return fmaf(power, rest * 0x1.62e430p-1f, power);
}

} // namespace TGI_CUDA_ENTRY

#endif
