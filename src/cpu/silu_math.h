/**
 * SiLU and its derivative on vectors, with one exponential e = exp(-x) and s = 1 / (1 + e):
 *
 *   y  = x / (1 + e)
 *   y' = s + y (1 - s),   1 - s = e s, in which nothing cancels
 *
 * Infinity gives its limits (y = infinity and 0, y' = 1 and 0), NaN gives NaN.
 * Errors: y and s within 2.5 ulp (y without a fused multiply-add 3) down to -88.7, where e
 * overflows and they become 0; y' within 2^-22; tests/test_math.c checks every f32 against f64.
 */
#ifndef TGI_CPU_SILU_MATH_H
#define TGI_CPU_SILU_MATH_H

#include "cpu/exp.h"

/** 1 / (1 + exp(-x)); 0 and 1 at the infinities. */
TGI_INLINE vf vf_logistic(vf x)
{
  const vf one = vf_set1(1.0f);
  return one / (one + vf_exp(-x));
}

TGI_INLINE vf vf_silu(vf x)
{
  /* Finite below: infinity over infinity is no limit. */
  return vf_max(vf_set1(-0x1p126f), x) / (vf_set1(1.0f) + vf_exp(-x));
}

/** x clamped to where nothing changes by more than 2^-118 beyond; d = 1 + e, s and y' of it. */
typedef struct vf_logistic_parts {
  vf x, d, s, slope;
} vf_logistic_parts;

TGI_INLINE vf_logistic_parts vf_logistic_parts_of(vf x)
{
  const vf one = vf_set1(1.0f), c = vf_min(vf_set1(87.0f), vf_max(vf_set1(-87.0f), x));
  vf n;
  const vf r = vf_exp_reduce(-c, &n);
  const vf e = vf_exp_expand(n, r), d = one + e, s = one / d;
  return (vf_logistic_parts){c, d, s, vf_fma(c * s, e * s, s)};
}

/** y', and y as *value, within 2^-118 of its limit 0 below -87. */
TGI_INLINE vf vf_silu_both(vf x, vf *value)
{
  const vf_logistic_parts p = vf_logistic_parts_of(x);
  const vf y = p.x * p.s;
  const vf quotient = vf_fma(vf_fma(-y, p.d, p.x), p.s, y); /* x / d as a division rounds it */
  *value = vf_select(vf_lt(vf_set1(87.0f), x), x, quotient);
  return p.slope;
}

TGI_INLINE vf vf_silu_grad(vf x)
{
  vf value;
  return vf_silu_both(x, &value);
}

#endif
