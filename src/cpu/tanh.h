/**
 * tanh on vectors.
 *
 * Method: with m = e^(-2|x|) - 1, tanh |x| = -m / (m + 2). m comes from the reduction of exp.h and
 * a polynomial for e^r - 1 that is relatively exact at 0 (degree 7, error below 2^-31), so small
 * arguments keep all their bits and nothing overflows. tests/cpu/test_math.c checks every f32.
 */
#ifndef TGI_CPU_TANH_H
#define TGI_CPU_TANH_H

#include "cpu/exp.h"

/** e^x - 1 for -32 <= x <= 0. */
TGI_INLINE vf vf_expm1_negative(vf x)
{
  vf n;
  const vf r = vf_exp_reduce(x, &n);
  vf p = vf_set1(0x1.9e7380p-13f);
  p = vf_fma(p, r, vf_set1(0x1.6d3a4ap-10f));
  p = vf_fma(p, r, vf_set1(0x1.1112d8p-7f));
  p = vf_fma(p, r, vf_set1(0x1.5554f8p-5f));
  p = vf_fma(p, r, vf_set1(0x1.555554p-3f));
  p = vf_fma(p, r, vf_set1(0.5f));
  p = vf_fma(p * r, r, r);
  const vf scale = vf_scale2(vf_set1(1.0f), n);
  return vf_fma(p, scale, scale - vf_set1(1.0f));
}

/** tanh x within 2.5 ulp, with the sign of x; NaN for NaN. */
TGI_INLINE vf vf_tanh(vf x)
{
  const vf magnitude = vf_min(vf_set1(10.0f), vf_abs(x)); /* tanh 10 rounds to 1 */
  const vf m = vf_expm1_negative(magnitude * vf_set1(-2.0f));
  return vf_copysign(-m / (m + vf_set1(2.0f)), x);
}

#endif
