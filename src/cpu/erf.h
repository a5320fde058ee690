/**
 * The tail of the normal distribution on vectors, from which erf-form GELU is made.
 *
 * Method: Q(a) = erfc(a / sqrt 2) / 2 = e^(-a^2 / 2) R(a) with a smooth R (the scaled tail), here a
 * polynomial of degree 9 in t = (a - 3) / (a + 3), relative error below 2^-26 on [0, 14.7]. The
 * rounding error of a^2 is carried into the exponential, so that small tails keep their bits.
 * tests/test_math.c checks every f32.
 * Source: Shepherd & Laframboise 1981, Math. Comp. 36, for the change of variable.
 */
#ifndef TGI_CPU_ERF_H
#define TGI_CPU_ERF_H

#include "cpu/exp.h"

/** e^(-a^2 / 2) for 0 <= a <= 14.6; 0 at 14.6. */
TGI_INLINE vf vf_exp_half_square(vf a)
{
  const vf square = a * a, lost = vf_fma(a, a, -square);
  vf n;
  const vf r = vf_exp_reduce(square * vf_set1(-0.5f), &n);
  return vf_exp_expand(n, vf_fma(lost, vf_set1(-0.5f), r));
}

/** Q(a) / e^(-a^2 / 2) for 0 <= a <= 14.6. */
TGI_INLINE vf vf_scaled_tail(vf a)
{
  const vf t = (a - vf_set1(3.0f)) / (a + vf_set1(3.0f));
  vf p = vf_set1(0x1.c069ecp-15f);
  p = vf_fma(p, t, vf_set1(0x1.e3d422p-14f));
  p = vf_fma(p, t, vf_set1(-0x1.63e574p-12f));
  p = vf_fma(p, t, vf_set1(-0x1.01e03ap-10f));
  p = vf_fma(p, t, vf_set1(0x1.7cb656p-9f));
  p = vf_fma(p, t, vf_set1(0x1.91dfdap-8f));
  p = vf_fma(p, t, vf_set1(-0x1.7a945cp-5f));
  p = vf_fma(p, t, vf_set1(0x1.f8baccp-4f));
  p = vf_fma(p, t, vf_set1(-0x1.a6b66ap-3f));
  return vf_fma(p, t, vf_set1(0x1.f1b89cp-4f));
}

#endif
