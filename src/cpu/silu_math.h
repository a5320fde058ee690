/**
 * SiLU and its derivative on vectors, with one exponential e = exp(-x) and s = 1 / (1 + e):
 *
 *   y  = x / (1 + e)
 *   y' = s + y (1 - s),   1 - s = e s, in which nothing cancels
 *
 * Infinity gives its limits (y = infinity and 0, y' = 1 and 0), NaN gives NaN.
 * Errors: y and s within 2.5 ulp (y without a fused multiply-add 3) down to -88.7, where e
 * overflows and y, s and y' become 0, so that no gradient passes a gate that is shut; y' within
 * 2^-22. Gradients that stay f32 carry what 1 + e and the division lose: y' has about the error of
 * its last addition. tests/cpu/test_math.c checks every f32 against f64.
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

/** x clamped to where nothing changes by more than 2^-118 beyond; s + low, y and y' of it. All but
 * x are 0 where exp(-x) overflows, as vf_silu and vf_logistic are. */
typedef struct vf_logistic_parts {
  vf x, s, low, y, slope;
} vf_logistic_parts;

/* s, and 0 instead where exp(-x) overflows. */
TGI_INLINE vf vf_open(vf x, vf s)
{
  return vf_select(vf_lt(x, vf_set1(-0x1.62e42ep+6f)), vf_zero(), s);
}

TGI_INLINE vf vf_logistic_clamped(vf x)
{
  return vf_min(vf_set1(87.0f), vf_max(vf_set1(-87.0f), x));
}

/* With e = 2^n (1 + r), d = (1 + 2^n) + 2^n r is rounded once, and what this and the division lose
 * is known, but for a 2^n or a 1 of at most 2^-24 of d. */
TGI_INLINE vf_logistic_parts vf_logistic_parts_exact(vf x)
{
  const vf one = vf_set1(1.0f), c = vf_logistic_clamped(x);
  vf n;
  const vf r = vf_exp_rest(vf_exp_reduce(-c, &n)), power = vf_scale2(one, n), base = one + power;
  const vf d = vf_fma(r, power, base), s = vf_open(x, one / d), lost = vf_fma(r, power, base - d);
  const vf low = s * vf_fma(-s, lost, vf_fma(-s, d, one));
  const vf e = vf_fma(r, power, power), y = vf_fma(c, s, c * low);
  return (vf_logistic_parts){c, s, low, y, s + vf_fma(y, e * s, low)};
}

/** `t`: the dtype that results are rounded to in the end. */
TGI_INLINE vf_logistic_parts vf_logistic_parts_of(vf x, int t)
{
  if (t == TG_F32) {
    return vf_logistic_parts_exact(x);
  }
  const vf one = vf_set1(1.0f), c = vf_logistic_clamped(x);
  vf n;
  const vf r = vf_exp_reduce(-c, &n);
  const vf e = vf_exp_expand(n, r), d = one + e, s = vf_open(x, one / d), y = c * s;
  const vf quotient = vf_fma(vf_fma(-y, d, c), s, y); /* c / d as a division rounds it */
  return (vf_logistic_parts){c, s, vf_zero(), quotient, vf_fma(y, e * s, s)};
}

/** y', and y as *value, which is within 2^-118 of vf_silu below -87. */
TGI_INLINE vf vf_silu_both(vf x, int t, vf *value)
{
  const vf_logistic_parts p = vf_logistic_parts_of(x, t);
  *value = vf_select(vf_lt(vf_set1(87.0f), x), x, p.y);
  return p.slope;
}

TGI_INLINE vf vf_silu_grad(vf x, int t)
{
  vf value;
  return vf_silu_both(x, t, &value);
}

#endif
