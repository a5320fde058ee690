/**
 * The activations of the references, in f64 with every step of their formulas through tgi_round:
 * with t f64 they are the oracle, with 16-bit t the result of rounding after each step.
 */
#ifndef TGI_OPS_ACTIVATION_REF_H
#define TGI_OPS_ACTIVATION_REF_H

#include "core/values/half.h"
#include "tegula/gelu.h"

static inline double tgi_logistic_ref(tg_dtype t, double x)
{
  return tgi_round(t, 1 / tgi_round(t, 1 + tgi_round(t, exp(-x))));
}

static inline double tgi_silu_ref(tg_dtype t, double x)
{
  return x == -INFINITY ? 0 : tgi_round(t, x * tgi_logistic_ref(t, x));
}

static inline double tgi_silu_grad_ref(tg_dtype t, double x)
{
  if (isinf(x)) {
    return x > 0 ? 1 : 0;
  }
  const double s = tgi_logistic_ref(t, x);
  return tgi_round(t, s + tgi_round(t, tgi_round(t, x * s) * tgi_round(t, 1 - s)));
}

static const double kSqrt2OverPi = 0.79788456080286535588;
static const double kSqrtHalf = 0.70710678118654752440;
static const double kOneOverSqrt2Pi = 0.39894228040143267794;
static const double kCubic = 0.044715;

static inline double gelu_tanh_of_inner(tg_dtype t, double x)
{
  const double cube = tgi_round(t, tgi_round(t, x * x) * x);
  const double sum = tgi_round(t, x + tgi_round(t, kCubic * cube));
  return tgi_round(t, tanh(tgi_round(t, kSqrt2OverPi * sum)));
}

/** GELU in the given form. */
static inline double tgi_gelu_ref(tg_dtype t, tg_gelu_approximation form, double x)
{
  if (isinf(x)) {
    return x > 0 ? x : 0;
  }
  const double phi = form == TG_GELU_TANH ? gelu_tanh_of_inner(t, x)
                                          : tgi_round(t, erf(tgi_round(t, x * kSqrtHalf)));
  return tgi_round(t, tgi_round(t, 0.5 * x) * tgi_round(t, 1 + phi));
}

static inline double tgi_gelu_grad_ref(tg_dtype t, tg_gelu_approximation form, double x)
{
  if (isinf(x)) {
    return x > 0 ? 1 : 0;
  }
  const double square = tgi_round(t, x * x);
  if (form == TG_GELU_TANH) {
    const double h = gelu_tanh_of_inner(t, x);
    const double left = tgi_round(t, 0.5 * tgi_round(t, 1 + h));
    const double slope = tgi_round(t, kSqrt2OverPi * tgi_round(t, 1 + 3 * kCubic * square));
    const double bell = tgi_round(t, 1 - tgi_round(t, h * h));
    if (bell == 0) { /* the factors beside it may have overflowed */
      return left;
    }
    return tgi_round(t, left + tgi_round(t, tgi_round(t, 0.5 * x * bell) * slope));
  }
  const double cdf = tgi_round(t, 0.5 * tgi_round(t, 1 + erf(tgi_round(t, x * kSqrtHalf))));
  const double pdf = tgi_round(t, kOneOverSqrt2Pi * tgi_round(t, exp(-0.5 * square)));
  return tgi_round(t, cdf + tgi_round(t, x * pdf));
}

#endif
