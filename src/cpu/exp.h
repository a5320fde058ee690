/**
 * exp and its relatives on vectors.
 *
 * Method: x = n ln 2 + r with |r| <= ln 2 / 2 (Cody & Waite: ln 2 in two parts), a polynomial for
 * e^r of degree 6 (relative error below 2^-27 on the interval), and an exact scaling by 2^n.
 * tests/test_math.c checks every f32 against double.
 */
#ifndef TGI_CPU_EXP_H
#define TGI_CPU_EXP_H

#include "cpu/simd.h"

/** e^x within 1 ulp; 0 below -104, infinity above 88.8, NaN for NaN. */
TGI_INLINE vf vf_exp(vf x)
{
  /* Clamped where the result is settled; maxps and minps return their second operand on NaN. */
  const vf clamped = vf_max(vf_set1(-105.0f), vf_min(vf_set1(89.0f), x));
  const vf n = vf_rint(clamped * vf_set1(0x1.715476p+0f));
  vf r = vf_fma(n, vf_set1(-0x1.62e400p-1f), clamped);
  r = vf_fma(n, vf_set1(-0x1.7f7d1cp-20f), r);
  vf p = vf_set1(0x1.6b7efap-10f);
  p = vf_fma(p, r, vf_set1(0x1.12278ep-7f));
  p = vf_fma(p, r, vf_set1(0x1.555586p-5f));
  p = vf_fma(p, r, vf_set1(0x1.555502p-3f));
  p = vf_fma(p, r, vf_set1(0x1.fffffep-2f));
  p = vf_fma(p, r, vf_set1(1.0f));
  p = vf_fma(p, r, vf_set1(1.0f));
  return vf_scale2(p, n);
}

#endif
