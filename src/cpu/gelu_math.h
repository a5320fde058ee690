/**
 * GELU and its derivative on vectors: the words of ops/gelu and of fused epilogues.
 *
 *   tanh form  y = x (1 + tanh u) / 2 = x s(2u),  u = sqrt(2 / pi) (x + 0.044715 x^3)
 *   erf form   y = x Phi(x)
 *
 * s is the logistic function, Phi the normal distribution. Both are evaluated through their tail
 * at a = |x|, where nothing cancels: with q = s(-2u(a)) or Phi(-a),
 *   y  = max(x, 0) - a q
 *   y' = d for x < 0, else 1 - d, with d = q - a q'(-a)
 * Infinity gives its limits (y = infinity and 0, y' = 1 and 0), NaN gives NaN. Errors: y within
 * 5.5 ulp where |y| >= 2^-90, y' within 2e-7 (without a fused multiply-add the far tail of y is
 * within 160 ulp). tests/test_math.c checks every f32 against f64.
 */
#ifndef TGI_CPU_GELU_MATH_H
#define TGI_CPU_GELU_MATH_H

#include "cpu/erf.h"
#include "cpu/exp.h"

/* s(-2u(a)) for 0 <= a <= 11. 2u log2(e) = a h with h = k0 + k1 a^2; the rounding errors of a^2 and
 * h are carried along, else the tail would lose log2(2u) bits. k0 is short, so that k0 - h is
 * exact. */
TGI_INLINE vf vf_gelu_tanh_tail(vf a)
{
  const vf k0 = vf_set1(-0x1.26aecp+1f), k1 = vf_set1(-0x1.a5a7d0p-4f);
  const vf square = a * a, lost = vf_fma(a, a, -square);
  const vf h = vf_fma(k1, square, k0);
  const vf low = vf_fma(square, vf_set1(0x1.151aaep-29f), vf_set1(-0x1.0de73ap-22f)) +
                 vf_fma(k1, lost, vf_fma(k1, square, k0 - h));
  const vf n = vf_rint(a * h);
  const vf e = vf_exp2_expand(n, vf_fma(a, low, vf_fma(a, h, -n)));
  return e / (vf_set1(1.0f) + e);
}

TGI_INLINE vf vf_gelu_tanh(vf x)
{
  const vf a = vf_min(vf_set1(11.0f), vf_abs(x)); /* the tail is 0 from here on */
  return vf_fma(-a, vf_gelu_tanh_tail(a), vf_max(vf_zero(), x));
}

TGI_INLINE vf vf_gelu_tanh_grad(vf x)
{
  const vf a = vf_min(vf_set1(11.0f), vf_abs(x)), one = vf_set1(1.0f);
  const vf q = vf_gelu_tanh_tail(a);
  /* q' = q (1 - q) 2u' */
  const vf du = a * vf_fma(a * a, vf_set1(0x1.b6676cp-3f), vf_set1(0x1.988454p+0f));
  const vf d = q * vf_fma(q - one, du, one);
  return vf_select(vf_lt(x, vf_zero()), d, one - d);
}

TGI_INLINE vf vf_gelu_erf(vf x)
{
  const vf a = vf_min(vf_set1(14.6f), vf_abs(x)); /* the tail is 0 from here on */
  return vf_fma(-a * vf_scaled_tail(a), vf_exp_half_square(a), vf_max(vf_zero(), x));
}

TGI_INLINE vf vf_gelu_erf_grad(vf x)
{
  const vf a = vf_min(vf_set1(14.6f), vf_abs(x)), one = vf_set1(1.0f);
  /* q' = e^(-a^2 / 2) / sqrt(2 pi) */
  const vf inner = vf_fma(a, vf_set1(-0x1.988454p-2f), vf_scaled_tail(a));
  const vf d = vf_exp_half_square(a) * inner;
  return vf_select(vf_lt(x, vf_zero()), d, one - d);
}

#endif
