/**
 * The normal distribution on vectors: its tail Q(a) = erfc(a / sqrt 2) / 2 and its bell
 * e^(-a^2 / 2), from which the erf form of GELU is made.
 *
 * Method: Q(a) = 2^(a H(a)) / 2 with a polynomial H of degree 9, so that one exponential and no
 * division is needed and the tail falls to 0 by itself. The fit minimises the error of Q relative
 * to Q + 2^-10: 2^-26 of Q for a < 3, an absolute 2^-37 beyond. The exponent a H is split into n +
 * r before it is rounded, and 2^r / 2 is a polynomial of degree 6: one of degree 5 (2^-23.4) made
 * half of the error for x < 0. tests/cpu/test_math.c
 * checks every f32.
 */
#ifndef TGI_CPU_ERF_H
#define TGI_CPU_ERF_H

#include "cpu/exp.h"

/** Q(a) for 0 <= a <= 11; 0 at 11. */
TGI_INLINE vf vf_normal_tail(vf a)
{
  vf h = vf_set1(-0x1.733da6p-25f);
  h = vf_fma(h, a, vf_set1(0x1.321644p-20f));
  h = vf_fma(h, a, vf_set1(-0x1.bb2a7cp-17f));
  h = vf_fma(h, a, vf_set1(0x1.67aa50p-14f));
  h = vf_fma(h, a, vf_set1(-0x1.3b9dccp-12f));
  h = vf_fma(h, a, vf_set1(0x1.b83d8ep-16f));
  h = vf_fma(h, a, vf_set1(0x1.c65118p-8f));
  h = vf_fma(h, a, vf_set1(-0x1.ad97cap-5f));
  h = vf_fma(h, a, vf_set1(-0x1.d63d7ap-2f));
  h = vf_fma(h, a, vf_set1(-0x1.26aecap+0f));
  const vf n = vf_rint(a * h), r = vf_fma(a, h, -n);
  vf q = vf_set1(0x1.4176b2p-14f); /* half of vf_exp2_expand */
  q = vf_fma(q, r, vf_set1(0x1.5f0964p-11f));
  q = vf_fma(q, r, vf_set1(0x1.3b2dd6p-8f));
  q = vf_fma(q, r, vf_set1(0x1.c6af7ap-6f));
  q = vf_fma(q, r, vf_set1(0x1.ebfbdcp-4f));
  q = vf_fma(q, r, vf_set1(0x1.62e430p-2f));
  q = vf_fma(q, r, vf_set1(0.5f));
  return vf_scale2(q, n);
}

/** e^(-a^2 / 2) for |a| <= 15. */
TGI_INLINE vf vf_normal_bell(vf a)
{
  const vf square = a * a, half_log2_e = vf_set1(-0x1.715476p-1f);
  const vf n = vf_rint(square * half_log2_e);
  return vf_exp2_expand(n, vf_fma(square, half_log2_e, -n));
}

#endif
