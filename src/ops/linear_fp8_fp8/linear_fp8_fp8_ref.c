/* Linear layers of e4m3 by e4m3, reference. With f64 tensors it is the oracle; with 16-bit ones it
 * is what a plain implementation does that widens both operands, with their scales, to the dtype
 * first. The codes of x are part of the op, so they are made in f32 here too. */
#include "core/values/quantize.h"
#include "ops/kernels.h"

/* Scale of row i, and in f32 operations code (i, k) as a number. */
static double scale_of(const tg_linear_fp8_fp8_fwd_args *a, int64_t i)
{
  float most = 0;
  if (tgi_present(&a->x_scale)) {
    return tgi_load(a->x_scale.data, a->x_scale.dtype, i);
  }
  for (int64_t k = 0; k < a->x.shape[1]; k++) {
    const float v = fabsf((float)tgi_load(tgi_row(&a->x, i), a->x.dtype, k));
    most = v > most || isnan(v) ? v : most;
  }
  return (double)tgi_e4m3_scale(most);
}

static double value_of(const tg_linear_fp8_fp8_fwd_args *a, int64_t i, int64_t k, double scale)
{
  const double v = tgi_load(tgi_row(&a->x, i), a->x.dtype, k);
  return a->x.dtype == TG_F8_E4M3
             ? v
             : (double)tgi_f8_e4m3_to_f32(tgi_f32_to_f8_e4m3((float)v / (float)scale));
}

tg_status TGI_KERNEL(linear_fp8_fp8_fwd)(const tg_context *ctx, const tg_linear_fp8_fp8_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], in = a->x.shape[1], out = a->y.shape[1];
  const tg_dtype dtype = a->y.dtype;
  (void)ctx;
  for (int64_t i = 0; i < rows; i++) {
    const double t = scale_of(a, i);
    for (int64_t o = 0; o < out; o++) {
      const double s = tgi_load(a->weight_scale.data, a->weight_scale.dtype,
                                a->weight_scale.shape[0] == 1 ? 0 : o);
      double y = 0 * t * s; /* NaN also where nothing is summed */
      for (int64_t k = 0; k < in; k++) {
        const double w = tgi_load(tgi_row(&a->weight, o), TG_F8_E4M3, k);
        y += tgi_round(dtype, value_of(a, i, k, t) * t) * tgi_round(dtype, w * s);
      }
      if (tgi_present(&a->bias)) {
        y = tgi_round(dtype, y) + tgi_load(a->bias.data, a->bias.dtype, o);
      }
      tgi_store(tgi_row(&a->y, i), dtype, o, y);
    }
  }
  return TG_OK;
}
