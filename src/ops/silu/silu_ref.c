/* SiLU, reference: the contract's formulas step by step. Every step passes through tgi_round: with
 * f64 tensors this is the oracle, with 16-bit tensors the result of rounding after each step. */
#include "core/half.h"
#include "ops/kernels.h"

static double logistic(tg_dtype t, double x)
{
  return tgi_round(t, 1 / tgi_round(t, 1 + tgi_round(t, exp(-x))));
}

static double silu(tg_dtype t, double x)
{
  return x == -INFINITY ? 0 : tgi_round(t, x * logistic(t, x));
}

static double silu_grad(tg_dtype t, double x)
{
  if (isinf(x)) {
    return x > 0 ? 1 : 0;
  }
  const double s = logistic(t, x);
  const double slope = tgi_round(t, tgi_round(t, x * s) * tgi_round(t, 1 - s));
  return tgi_round(t, s + slope);
}

tg_status TGI_KERNEL(silu_fwd)(const tg_context *ctx, const tg_silu_fwd_args *a)
{
  const tg_dtype t = a->x.dtype;
  (void)ctx;
  for (int64_t i = 0; i < a->x.shape[0]; i++) {
    const void *x = tgi_row(&a->x, i);
    void *y = tgi_row(&a->y, i);
    for (int64_t j = 0; j < a->x.shape[1]; j++) {
      tgi_store(y, t, j, silu(t, tgi_load(x, t, j)));
    }
  }
  return TG_OK;
}

tg_status TGI_KERNEL(silu_bwd)(const tg_context *ctx, const tg_silu_bwd_args *a)
{
  const tg_dtype t = a->x.dtype;
  (void)ctx;
  for (int64_t i = 0; i < a->x.shape[0]; i++) {
    const void *x = tgi_row(&a->x, i), *dy = tgi_row(&a->dy, i);
    void *dx = tgi_row(&a->dx, i);
    for (int64_t j = 0; j < a->x.shape[1]; j++) {
      tgi_store(dx, t, j, tgi_load(dy, t, j) * silu_grad(t, tgi_load(x, t, j)));
    }
  }
  return TG_OK;
}
