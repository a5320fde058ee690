/**
 * SiLU and its slope in f32; the formulas of the CPU's cpu/silu_math.h with the device's exp.
 * T: the dtype that results are rounded to. For 16-bit ones the device's units for powers of two
 * and reciprocals do, within 2^-17 of each result: its exact forms take several times the
 * instructions, and memory would wait for them.
 */
#ifndef TGI_CUDA_SILU_MATH_CUH
#define TGI_CUDA_SILU_MATH_CUH

#include "cuda/exp2.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** NaN passes through these. */
__device__ __forceinline__ float at_most(float limit, float v)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float least;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(v), "f"(limit));
  return least;
#else
  return v > limit ? limit : v;
#endif
}

__device__ __forceinline__ float at_least(float limit, float v)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float most;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(most) : "f"(v), "f"(limit));
  return most;
#else
  return v < limit ? limit : v;
#endif
}

/** exp(-x); for a 16-bit T 0 below 2^-126. */
template <typename T> __device__ __forceinline__ float exp_of_minus(float x)
{
  if constexpr (sizeof(T) == 4) {
    return expf(-x);
  } else {
    return exp2_flushed(x * -0x1.715476p+0f);
  }
}

/** 1 / v for v >= 1; for a 16-bit T 0 above 2^126. */
template <typename T> __device__ __forceinline__ float inverse_of(float v)
{
  if constexpr (sizeof(T) == 4) {
    return 1.0f / v;
  } else {
    return reciprocal_flushed(v);
  }
}

/** Below, silu and the logistic function are 0: 1 + exp(-x) overflows, or its inverse is flushed.
 */
template <typename T>
constexpr float kGateShut = sizeof(T) == 4 ? -0x1.62e42ep+6f : -0x1.5d589ep+6f;

/** x clamped for gradients: beyond 87 they change by less than 2^-118. NaN stays NaN. */
__device__ __forceinline__ float bounded_gate(float x)
{
  return at_least(-87.0f, at_most(87.0f, x));
}

/** 1 + exp(-x) from e = exp(-bounded_gate(x)); infinite where silu is 0, so that no gradient passes
 * there. */
template <typename T> __device__ __forceinline__ float one_plus(float x, float e)
{
  return x < kGateShut<T> ? INFINITY : 1.0f + e;
}

/** 1 / (1 + exp(-x)). */
template <typename T> __device__ __forceinline__ float logistic(float x)
{
  return inverse_of<T>(1.0f + exp_of_minus<T>(x));
}

/** x / (1 + exp(-x)); the limits at the infinities. */
template <typename T> __device__ __forceinline__ float silu(float x)
{
  const float d = 1.0f + exp_of_minus<T>(x);
  /* Finite below: infinity over infinity is no limit. */
  if constexpr (sizeof(T) == 4) {
    return at_least(-0x1p126f, x) / d;
  } else {
    return fmaxf(x, -0x1p126f) * reciprocal_flushed(d); /* which is NaN if x is */
  }
}

/** The slope s + x s (1 - s), and silu(x) as *value. */
template <typename T> __device__ __forceinline__ float silu_slope(float x, float *value)
{
  const float c = bounded_gate(x), e = exp_of_minus<T>(c), d = one_plus<T>(x, e);
  const float s = inverse_of<T>(d);
  if constexpr (sizeof(T) == 4) {
    *value = x > 87.0f ? x : c / d;
  } else {
    *value = x > 87.0f ? x : c * s;
  }
  return fmaf(c * s, e * s, s);
}

} // namespace TGI_CUDA_ENTRY

#endif
