/**
 * GELU and its derivative on vectors: the words of ops/gelu and of fused epilogues.
 *
 *   tanh form  y = x (1 + tanh u) / 2 = x s(2u),  u = sqrt(2 / pi) (x + 0.044715 x^3)
 *   erf form   y = x Phi(x)
 *
 * s is the logistic function, Phi the normal distribution. Both are evaluated through their tail
 * at a = |x|, where nothing cancels: with q = s(-2u(a)) or Phi(-a),
 *   y  = max(x, 0) - a q
 *   y' = d for x < 0, else 1 - d, with d = q + a q'(a)
 * Infinity gives its limits (y = infinity and 0, y' = 1 and 0), NaN gives NaN.
 * Errors: y within 9 ulp (tanh) and 11 ulp (erf) of max(|y|, 2^-10), y' within 2^-22.8;
 * tests/cpu/test_math.c checks every f32 against f64. The budget is one vector in the time that two
 * cores need to stream it: more exact tails cost a third more.
 */
#ifndef TGI_CPU_GELU_MATH_H
#define TGI_CPU_GELU_MATH_H

#include "cpu/erf.h"
#include "cpu/exp.h"

/* s(-2u(a)) for 0 <= a <= 11; 0 at 11. h = 2u log2(e) / a. */
TGI_INLINE vf vf_gelu_tanh_tail(vf a)
{
  const vf h = vf_fma(a * a, vf_set1(-0x1.a5a7d0p-4f), vf_set1(-0x1.26aec2p+1f));
  const vf n = vf_rint(a * h);
  const vf e = vf_exp2_expand(n, vf_fma(a, h, -n));
  return e / (vf_set1(1.0f) + e);
}

TGI_INLINE vf vf_gelu_tanh(vf x)
{
  const vf a = vf_min(vf_set1(11.0f), vf_abs(x));
  return vf_fma(-a, vf_gelu_tanh_tail(a), vf_max(vf_zero(), x));
}

/** y', and y as *value. */
TGI_INLINE vf vf_gelu_tanh_both(vf x, vf *value)
{
  const vf a = vf_min(vf_set1(11.0f), vf_abs(x)), one = vf_set1(1.0f);
  const vf q = vf_gelu_tanh_tail(a);
  /* q' = q (1 - q) 2u' */
  const vf du = a * vf_fma(a * a, vf_set1(0x1.b6676cp-3f), vf_set1(0x1.988454p+0f));
  const vf d = q * vf_fma(q - one, du, one);
  *value = vf_fma(-a, q, vf_max(vf_zero(), x));
  return vf_select(vf_lt(x, vf_zero()), d, one - d);
}

TGI_INLINE vf vf_gelu_tanh_grad(vf x)
{
  vf value;
  return vf_gelu_tanh_both(x, &value);
}

TGI_INLINE vf vf_gelu_erf(vf x)
{
  const vf a = vf_min(vf_set1(11.0f), vf_abs(x));
  return vf_fma(-a, vf_normal_tail(a), vf_max(vf_zero(), x));
}

/* d = e^(-a^2 / 2) S(a), where S(a) = Q(a) e^(a^2 / 2) - a / sqrt(2 pi) is smooth: a polynomial
 * with an error that stays below 2^-24.9 in d. 0 from 10 on (|d| < 2^-70), since y becomes 0 before
 * 11: no gradient passes a gate that is shut. */
TGI_INLINE vf vf_gelu_erf_grad(vf x)
{
  const vf a = vf_min(vf_set1(11.0f), vf_abs(x));
  vf s = vf_set1(-0x1.0adbdcp-22f);
  s = vf_fma(s, a, vf_set1(0x1.aeab52p-18f));
  s = vf_fma(s, a, vf_set1(-0x1.3784ccp-14f));
  s = vf_fma(s, a, vf_set1(0x1.0ed8cap-11f));
  s = vf_fma(s, a, vf_set1(-0x1.42c9b4p-9f));
  s = vf_fma(s, a, vf_set1(0x1.1fff14p-7f));
  s = vf_fma(s, a, vf_set1(-0x1.9da79ep-6f));
  s = vf_fma(s, a, vf_set1(0x1.fa2436p-5f));
  s = vf_fma(s, a, vf_set1(-0x1.0fe40ap-3f));
  s = vf_fma(s, a, vf_set1(0x1.ffee12p-3f));
  s = vf_fma(s, a, vf_set1(-0x1.988416p-1f));
  s = vf_fma(s, a, vf_set1(0.5f));
  const vf d = vf_select(vf_le(vf_set1(10.0f), a), vf_zero(), vf_normal_bell(a) * s);
  return vf_select(vf_lt(x, vf_zero()), d, vf_set1(1.0f) - d);
}

#endif
