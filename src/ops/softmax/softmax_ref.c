/* Softmax, reference. Every rounding of the contract passes through tgi_round: with f64 tensors
 * this is the oracle, with 16-bit tensors the result of rounding after each step. */
#include "core/values/half.h"
#include "ops/kernels.h"

static double exponential(const tg_softmax_fwd_args *a, const void *x, int64_t j, double largest)
{
  const tg_dtype t = a->x.dtype;
  const double z = tgi_round(t, tgi_load(x, t, j) - largest) * (double)a->scale;
  return tgi_round(t, exp(tgi_round(t, z)));
}

tg_status TGI_KERNEL(softmax_fwd)(const tg_context *ctx, const tg_softmax_fwd_args *a)
{
  const tg_dtype t = a->x.dtype;
  (void)ctx;
  for (int64_t i = 0; i < a->x.shape[0]; i++) {
    const void *x = tgi_row(&a->x, i);
    double largest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < a->x.shape[1]; j++) {
      largest = fmax(largest, tgi_load(x, t, j)); /* a NaN counts in the sum */
    }
    for (int64_t j = 0; j < a->x.shape[1]; j++) {
      sum += exponential(a, x, j, largest);
    }
    for (int64_t j = 0; j < a->x.shape[1]; j++) {
      tgi_store(tgi_row(&a->y, i), t, j, exponential(a, x, j, largest) / sum);
    }
  }
  return TG_OK;
}

tg_status TGI_KERNEL(softmax_bwd)(const tg_context *ctx, const tg_softmax_bwd_args *a)
{
  const tg_dtype t = a->y.dtype;
  (void)ctx;
  for (int64_t i = 0; i < a->y.shape[0]; i++) {
    const void *y = tgi_row(&a->y, i), *dy = tgi_row(&a->dy, i);
    double dot = 0;
    for (int64_t j = 0; j < a->y.shape[1]; j++) {
      dot += tgi_round(t, tgi_load(dy, t, j) * tgi_load(y, t, j));
    }
    for (int64_t j = 0; j < a->y.shape[1]; j++) {
      const double centred = tgi_round(t, tgi_load(dy, t, j) - tgi_round(t, dot));
      const double dx = tgi_round(t, tgi_load(y, t, j) * centred);
      tgi_store(tgi_row(&a->dx, i), t, j, dx * (double)a->scale);
    }
  }
  return TG_OK;
}
