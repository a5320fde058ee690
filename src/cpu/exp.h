/**
 * e^x on vectors, and the parts that tanh.h, erf.h and gelu_math.h build on.
 *
 * Method: x = n ln 2 + r with |r| <= ln 2 / 2 (Cody & Waite: ln 2 in two parts, the first short
 * enough for n ln 2 to be exact), a polynomial for e^r of degree 6 (relative error below 2^-28 on
 * the interval), and a scaling by 2^n that rounds once, also into denormals.
 * tests/cpu/test_math.c checks every f32 against f64.
 */
#ifndef TGI_CPU_EXP_H
#define TGI_CPU_EXP_H

#include "cpu/simd.h"

/** n and r of x = n ln 2 + r, for |x| <= 128. */
TGI_INLINE vf vf_exp_reduce(vf x, vf *n)
{
  *n = vf_rint(x * vf_set1(0x1.715476p+0f));
  return vf_fma(*n, vf_set1(-0x1.7f7d1cp-20f), vf_fma(*n, vf_set1(-0x1.62e400p-1f), x));
}

/** 2^n e^r for an integral |n| <= 252 and |r| <= 0.35. */
TGI_INLINE vf vf_exp_expand(vf n, vf r)
{
  vf p = vf_set1(0x1.6a4d60p-10f);
  p = vf_fma(p, r, vf_set1(0x1.12398ep-7f));
  p = vf_fma(p, r, vf_set1(0x1.5558b0p-5f));
  p = vf_fma(p, r, vf_set1(0x1.555492p-3f));
  p = vf_fma(p, r, vf_set1(0x1.fffffcp-2f));
  p = vf_fma(p, r, vf_set1(1.0f));
  p = vf_fma(p, r, vf_set1(1.0f));
  return vf_scale2(p, n);
}

/** e^r - 1 for |r| <= 0.35: what vf_exp_expand rounds to a sum with 1. */
TGI_INLINE vf vf_exp_rest(vf r)
{
  vf p = vf_set1(0x1.6a4d60p-10f);
  p = vf_fma(p, r, vf_set1(0x1.12398ep-7f));
  p = vf_fma(p, r, vf_set1(0x1.5558b0p-5f));
  p = vf_fma(p, r, vf_set1(0x1.555492p-3f));
  p = vf_fma(p, r, vf_set1(0x1.fffffcp-2f));
  return vf_fma(p, r * r, r);
}

/** 2^(n + r) for an integral |n| <= 252 and |r| <= 1/2. */
TGI_INLINE vf vf_exp2_expand(vf n, vf r)
{
  vf p = vf_set1(0x1.4176b2p-13f);
  p = vf_fma(p, r, vf_set1(0x1.5f0964p-10f));
  p = vf_fma(p, r, vf_set1(0x1.3b2dd6p-7f));
  p = vf_fma(p, r, vf_set1(0x1.c6af7ap-5f));
  p = vf_fma(p, r, vf_set1(0x1.ebfbdcp-3f));
  p = vf_fma(p, r, vf_set1(0x1.62e430p-1f));
  p = vf_fma(p, r, vf_set1(1.0f));
  return vf_scale2(p, n);
}

/** e^x within 1 ulp (without a fused multiply-add 1.5); 0 below -104, infinity above 88.8, NaN for
 * NaN. */
TGI_INLINE vf vf_exp(vf x)
{
  /* Clamped where the result is settled; maxps and minps return their second operand on NaN. */
  vf n;
  const vf r = vf_exp_reduce(vf_max(vf_set1(-105.0f), vf_min(vf_set1(89.0f), x)), &n);
  return vf_exp_expand(n, r);
}

/** e^(a - b) within an ulp of what a - b is before it is rounded, where |a| <= |b|; elsewhere no
 * further off than vf_exp(a - b). */
TGI_INLINE vf vf_exp_difference(vf a, vf b)
{
  const vf x = a - b, most = vf_set1(0x1p-17f);
  /* Clamped, for it means nothing where x is infinite or was clamped itself. */
  const vf lost = vf_max(-most, vf_min(a - (x + b), most));
  vf n;
  const vf r = vf_exp_reduce(vf_max(vf_set1(-105.0f), vf_min(vf_set1(89.0f), x)), &n);
  return vf_exp_expand(n, r + lost);
}

#endif
