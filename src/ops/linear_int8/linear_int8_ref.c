/* Linear layers with int8 weights, reference. With f64 tensors weight-only is the oracle; with
 * 16-bit ones it is what a plain implementation does that widens its weights to the dtype first.
 * The integers of the dynamic mode are part of the op, so they are made in f32 here too. */
#include "core/values/quantize.h"
#include "ops/kernels.h"
#include "ops/linear_int8/linear_int8_packed.h"

enum { kRowsAtOnce = 16 }; /* of x, for which a value of W is widened once */

/* A row of x; in the dynamic mode, its scale. */
typedef struct row_of_x {
  const void *data;
  float low, high, scale;
} row_of_x;

static row_of_x read_row(const tg_tensor *x, int64_t i)
{
  row_of_x r = {tgi_row(x, i), 0, 0, 0};
  for (int64_t k = 0; k < x->shape[1]; k++) {
    const float v = (float)tgi_load(r.data, x->dtype, k);
    r.low = v < r.low || isnan(v) ? v : r.low;
    r.high = v > r.high || isnan(v) ? v : r.high;
  }
  r.scale = tgi_int8_symmetric(r.low, r.high).scale;
  return r;
}

/* Sums of n rows with row o of W, in a panel. */
static void sum_dynamic(const tg_linear_int8_fwd_args *a, const uint8_t *panel, int64_t o,
                        const row_of_x *r, int n, double *sum)
{
  for (int i = 0; i < n; i++) {
    sum[i] = 0;
    for (int64_t k = 0; k < a->x.shape[1]; k++) {
      const float v = (float)tgi_load(r[i].data, a->x.dtype, k);
      const double code = rint((double)(v / r[i].scale));
      sum[i] += code * (double)((float)panel[tgi_int8_value_at(o, k)] - tgi_int8_head(panel, 1, o));
    }
    sum[i] *= (double)r[i].scale * (double)tgi_int8_head(panel, 0, o);
  }
}

static void sum_weight_only(const tg_linear_int8_fwd_args *a, const uint8_t *panel, int64_t o,
                            const row_of_x *r, int n, double *sum)
{
  const double scale = (double)tgi_int8_head(panel, 0, o);
  for (int i = 0; i < n; i++) {
    sum[i] = isfinite(r[i].scale) ? 0 : NAN; /* of a row that holds NaN or infinity */
  }
  for (int64_t k = 0; k < a->x.shape[1]; k++) {
    const float code = (float)panel[tgi_int8_value_at(o, k)] - tgi_int8_head(panel, 1, o);
    const double w = tgi_round(a->x.dtype, (double)code * scale);
    for (int i = 0; i < n; i++) {
      sum[i] += tgi_load(r[i].data, a->x.dtype, k) * w;
    }
  }
}

tg_status TGI_KERNEL(linear_int8_fwd)(const tg_context *ctx, const tg_linear_int8_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], in = a->x.shape[1], out = a->y.shape[1];
  (void)ctx;
  for (int64_t first = 0; first < rows; first += kRowsAtOnce) {
    const int n = rows - first < kRowsAtOnce ? (int)(rows - first) : kRowsAtOnce;
    row_of_x r[kRowsAtOnce];
    for (int i = 0; i < n; i++) {
      r[i] = read_row(&a->x, first + i);
    }
    for (int64_t o = 0; o < out; o++) {
      const uint8_t *panel = (const uint8_t *)a->weight.data + tgi_int8_panel_at(o, in);
      double y[kRowsAtOnce];
      (a->mode == TG_INT8_DYNAMIC ? sum_dynamic : sum_weight_only)(a, panel, o, r, n, y);
      for (int i = 0; i < n; i++) {
        if (tgi_present(&a->bias)) {
          y[i] = tgi_round(a->y.dtype, y[i]) + tgi_load(a->bias.data, a->bias.dtype, o);
        }
        tgi_store(tgi_row(&a->y, first + i), a->y.dtype, o, y[i]);
      }
    }
  }
  return TG_OK;
}
