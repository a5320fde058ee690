/**
 * GELU and its slope in f32; the formulas of the CPU's cpu/gelu_math.h and cpu/erf.h with the
 * device's powers of two.
 *
 *   tanh form  y = x (1 + tanh u) / 2 = x s(2u),  u = sqrt(2 / pi) (x + 0.044715 x^3)
 *   erf form   y = x Phi(x)
 *
 * s is the logistic function, Phi the normal distribution. Both are evaluated through their tail
 * at a = |x|, where nothing cancels: with q = s(-2u(a)) or Phi(-a),
 *   y  = max(x, 0) - a q
 *   y' = d for x < 0, else 1 - d, with d = q + a q'(a)
 * T is the dtype that results are rounded to; 16-bit ones need not make up for the rounding of the
 * power's argument. Infinity gives its limits (y = infinity and 0, y' = 1 and 0), NaN gives NaN.
 */
#ifndef TGI_CUDA_GELU_MATH_CUH
#define TGI_CUDA_GELU_MATH_CUH

#include "cuda/silu_math.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** 2^(a b) for a finite product. */
template <typename T> __device__ __forceinline__ float gelu_power(float a, float b)
{
  if constexpr (sizeof(T) == 4) {
    return exp2_of_product(a, b);
  } else {
    return exp2_flushed(a * b);
  }
}

/** |x|, at most 11, where the tails are 0; NaN passes. */
__device__ __forceinline__ float gelu_bounded(float x)
{
  return at_most(11.0f, fabsf(x));
}

/** y from the tail q at a = gelu_bounded(x). */
__device__ __forceinline__ float gelu_of_tail(float x, float a, float q)
{
  return fmaf(-a, q, x < 0.0f ? 0.0f : x);
}

/** s(-2u(a)); h = 2u log2(e) / a. */
template <typename T> __device__ __forceinline__ float gelu_tanh_tail(float a)
{
  const float h = fmaf(a * a, -0x1.a5a7d0p-4f, -0x1.26aec2p+1f);
  const float e = gelu_power<T>(a, h);
  return e * reciprocal_flushed(1.0f + e);
}

template <typename T = float> __device__ __forceinline__ float gelu_tanh(float x)
{
  const float a = gelu_bounded(x);
  return gelu_of_tail(x, a, gelu_tanh_tail<T>(a));
}

/** The slope, and gelu_tanh(x) as *value. */
template <typename T = float>
__device__ __forceinline__ float gelu_tanh_slope(float x, float *value)
{
  const float a = gelu_bounded(x), q = gelu_tanh_tail<T>(a);
  /* q' = q (1 - q) 2u' */
  const float du = a * fmaf(a * a, 0x1.b6676cp-3f, 0x1.988454p+0f);
  const float d = q * fmaf(q - 1.0f, du, 1.0f);
  *value = gelu_of_tail(x, a, q);
  return x < 0.0f ? d : 1.0f - d;
}

/** Phi(-a) = 2^(a h) / 2 with a polynomial h; see cpu/erf.h. */
template <typename T> __device__ __forceinline__ float gelu_erf_tail(float a)
{
  float h = -0x1.733da6p-25f;
  h = fmaf(h, a, 0x1.321644p-20f);
  h = fmaf(h, a, -0x1.bb2a7cp-17f);
  h = fmaf(h, a, 0x1.67aa50p-14f);
  h = fmaf(h, a, -0x1.3b9dccp-12f);
  h = fmaf(h, a, 0x1.b83d8ep-16f);
  h = fmaf(h, a, 0x1.c65118p-8f);
  h = fmaf(h, a, -0x1.ad97cap-5f);
  h = fmaf(h, a, -0x1.d63d7ap-2f);
  h = fmaf(h, a, -0x1.26aecap+0f);
  return 0.5f * gelu_power<T>(a, h);
}

template <typename T = float> __device__ __forceinline__ float gelu_erf(float x)
{
  const float a = gelu_bounded(x);
  return gelu_of_tail(x, a, gelu_erf_tail<T>(a));
}

/** The slope: d = e^(-a^2 / 2) S(a), where S(a) = Phi(-a) e^(a^2 / 2) - a / sqrt(2 pi) is smooth: a
 * polynomial. 0 from 10 on (|d| < 2^-70), since y becomes 0 before 11. */
template <typename T = float> __device__ __forceinline__ float gelu_erf_slope(float x)
{
  const float a = gelu_bounded(x);
  float s = -0x1.0adbdcp-22f;
  s = fmaf(s, a, 0x1.aeab52p-18f);
  s = fmaf(s, a, -0x1.3784ccp-14f);
  s = fmaf(s, a, 0x1.0ed8cap-11f);
  s = fmaf(s, a, -0x1.42c9b4p-9f);
  s = fmaf(s, a, 0x1.1fff14p-7f);
  s = fmaf(s, a, -0x1.9da79ep-6f);
  s = fmaf(s, a, 0x1.fa2436p-5f);
  s = fmaf(s, a, -0x1.0fe40ap-3f);
  s = fmaf(s, a, 0x1.ffee12p-3f);
  s = fmaf(s, a, -0x1.988416p-1f);
  s = fmaf(s, a, 0.5f);
  const float d = a >= 10.0f ? 0.0f : gelu_power<T>(a * a, -0x1.715476p-1f) * s;
  return x < 0.0f ? d : 1.0f - d;
}

/** The slope, and gelu_erf(x) as *value. */
template <typename T = float> __device__ __forceinline__ float gelu_erf_slope(float x, float *value)
{
  *value = gelu_erf<T>(x);
  return gelu_erf_slope<T>(x);
}

} // namespace TGI_CUDA_ENTRY

#endif
