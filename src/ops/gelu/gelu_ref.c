/* GELU, reference: the contract's formulas step by step. Every step passes through tgi_round: with
 * f64 tensors this is the oracle, with 16-bit tensors the result of rounding after each step. */
#include "core/half.h"
#include "ops/kernels.h"

static const double kSqrt2OverPi = 0.79788456080286535588;
static const double kSqrtHalf = 0.70710678118654752440;
static const double kOneOverSqrt2Pi = 0.39894228040143267794;
static const double kCubic = 0.044715;

static double tanh_of_inner(tg_dtype t, double x)
{
  const double cube = tgi_round(t, tgi_round(t, x * x) * x);
  const double sum = tgi_round(t, x + tgi_round(t, kCubic * cube));
  return tgi_round(t, tanh(tgi_round(t, kSqrt2OverPi * sum)));
}

static double gelu(tg_dtype t, tg_gelu_approximation form, double x)
{
  if (isinf(x)) {
    return x > 0 ? x : 0;
  }
  const double phi =
      form == TG_GELU_TANH ? tanh_of_inner(t, x) : tgi_round(t, erf(tgi_round(t, x * kSqrtHalf)));
  return tgi_round(t, tgi_round(t, 0.5 * x) * tgi_round(t, 1 + phi));
}

static double gelu_grad(tg_dtype t, tg_gelu_approximation form, double x)
{
  if (isinf(x)) {
    return x > 0 ? 1 : 0;
  }
  const double square = tgi_round(t, x * x);
  if (form == TG_GELU_TANH) {
    const double h = tanh_of_inner(t, x);
    const double left = tgi_round(t, 0.5 * tgi_round(t, 1 + h));
    const double slope = tgi_round(t, kSqrt2OverPi * tgi_round(t, 1 + 3 * kCubic * square));
    const double bell = tgi_round(t, 1 - tgi_round(t, h * h));
    return tgi_round(t, left + tgi_round(t, tgi_round(t, 0.5 * x * bell) * slope));
  }
  const double cdf = tgi_round(t, 0.5 * tgi_round(t, 1 + erf(tgi_round(t, x * kSqrtHalf))));
  const double pdf = tgi_round(t, kOneOverSqrt2Pi * tgi_round(t, exp(-0.5 * square)));
  return tgi_round(t, cdf + tgi_round(t, x * pdf));
}

tg_status TGI_KERNEL(gelu_fwd)(const tg_context *ctx, const tg_gelu_fwd_args *a)
{
  const tg_dtype t = a->x.dtype;
  (void)ctx;
  for (int64_t i = 0; i < a->x.shape[0]; i++) {
    const void *x = tgi_row(&a->x, i);
    void *y = tgi_row(&a->y, i);
    for (int64_t j = 0; j < a->x.shape[1]; j++) {
      tgi_store(y, t, j, gelu(t, a->approximation, tgi_load(x, t, j)));
    }
  }
  return TG_OK;
}

tg_status TGI_KERNEL(gelu_bwd)(const tg_context *ctx, const tg_gelu_bwd_args *a)
{
  const tg_dtype t = a->x.dtype;
  (void)ctx;
  for (int64_t i = 0; i < a->x.shape[0]; i++) {
    const void *x = tgi_row(&a->x, i), *dy = tgi_row(&a->dy, i);
    void *dx = tgi_row(&a->dx, i);
    for (int64_t j = 0; j < a->x.shape[1]; j++) {
      tgi_store(dx, t, j, tgi_load(dy, t, j) * gelu_grad(t, a->approximation, tgi_load(x, t, j)));
    }
  }
  return TG_OK;
}
