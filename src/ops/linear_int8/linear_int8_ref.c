/* Linear layers with int8 weights, reference. With f64 tensors weight-only is the oracle; with
 * 16-bit ones it is what a plain implementation does that widens its weights to the dtype first.
 * The integers of the dynamic mode are part of the op, so they are made in f32 here too. */
#include "core/values/quantize.h"
#include "ops/kernels.h"
#include "ops/linear_int8/linear_int8_packed.h"

/* Scale and X of one row in the dynamic mode. */
typedef struct quantised_row {
  float low, high, scale;
} quantised_row;

static quantised_row quantise(const tg_tensor *x, int64_t i)
{
  quantised_row r = {0, 0, 0};
  for (int64_t k = 0; k < x->shape[1]; k++) {
    const float v = (float)tgi_load(tgi_row(x, i), x->dtype, k);
    r.low = v < r.low || isnan(v) ? v : r.low;
    r.high = v > r.high || isnan(v) ? v : r.high;
  }
  r.scale = tgi_int8_symmetric(r.low, r.high).scale;
  return r;
}

static double sum_dynamic(const tg_linear_int8_fwd_args *a, const quantised_row *r,
                          const uint8_t *panel, int64_t i, int64_t o)
{
  double sum = 0;
  for (int64_t k = 0; k < a->x.shape[1]; k++) {
    const float v = (float)tgi_load(tgi_row(&a->x, i), a->x.dtype, k);
    const double n = rint((double)(v / r->scale));
    sum += n * (double)((float)panel[tgi_int8_value_at(o, k)] - tgi_int8_head(panel, 1, o));
  }
  return sum * (double)r->scale * (double)tgi_int8_head(panel, 0, o);
}

static double sum_weight_only(const tg_linear_int8_fwd_args *a, const quantised_row *r,
                              const uint8_t *panel, int64_t i, int64_t o)
{
  const double scale = (double)tgi_int8_head(panel, 0, o);
  double sum = isfinite(r->scale) ? 0 : NAN; /* of a row that holds NaN or infinity */
  for (int64_t k = 0; k < a->x.shape[1]; k++) {
    const double n = (double)((float)panel[tgi_int8_value_at(o, k)] - tgi_int8_head(panel, 1, o));
    sum += tgi_load(tgi_row(&a->x, i), a->x.dtype, k) * tgi_round(a->x.dtype, n * scale);
  }
  return sum;
}

tg_status TGI_KERNEL(linear_int8_fwd)(const tg_context *ctx, const tg_linear_int8_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], in = a->x.shape[1], out = a->y.shape[1];
  (void)ctx;
  for (int64_t i = 0; i < rows; i++) {
    const quantised_row r = quantise(&a->x, i);
    for (int64_t o = 0; o < out; o++) {
      const uint8_t *panel = (const uint8_t *)a->weight.data + tgi_int8_panel_at(o, in);
      double y = a->mode == TG_INT8_DYNAMIC ? sum_dynamic(a, &r, panel, i, o)
                                            : sum_weight_only(a, &r, panel, i, o);
      if (tgi_present(&a->bias)) {
        y = tgi_round(a->y.dtype, y) + tgi_load(a->bias.data, a->bias.dtype, o);
      }
      tgi_store(tgi_row(&a->y, i), a->y.dtype, o, y);
    }
  }
  return TG_OK;
}
