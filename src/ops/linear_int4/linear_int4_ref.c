/* Linear layers with int4 weights, reference. With f64 tensors this is the oracle; with 16-bit ones
 * it is what a plain implementation does that widens its weights to the dtype first. */
#include "ops/kernels.h"
#include "ops/linear_int4/linear_int4_packed.h"

/* (W[o,k] - z) * s */
static double weight_at(const uint8_t *packed, const tgi_int4_layout *l, int64_t o, int64_t k)
{
  const uint8_t *group = packed + tgi_int4_group_at(l, o, k / l->group_size);
  const int64_t column = k % l->group_size;
  const size_t scale_bytes = tg_dtype_bytes(l->scale_dtype);
  const uint8_t byte = group[tgi_int4_head_bytes(l) + tgi_int4_value_at(o, column)];
  const int zero_point =
      l->zero_points ? group[TGI_PANEL_ROWS * scale_bytes + (size_t)(o % TGI_PANEL_ROWS)] : 8;
  float scale;
  uint16_t half;
  if (l->scale_dtype == TG_F16) {
    memcpy(&half, group + (size_t)(o % TGI_PANEL_ROWS) * sizeof half, sizeof half);
    scale = tgi_f16_to_f32(half);
  } else {
    memcpy(&scale, group + (size_t)(o % TGI_PANEL_ROWS) * sizeof scale, sizeof scale);
  }
  return ((column % 8 < 4 ? byte & 15 : byte >> 4) - zero_point) * (double)scale;
}

enum { kRowsAtOnce = 16 }; /* of x, for which a value of W is widened once */

tg_status TGI_KERNEL(linear_int4_fwd)(const tg_context *ctx, const tg_linear_int4_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], in = a->x.shape[1], out = a->y.shape[1];
  const tgi_packed_header header = tgi_packed_header_of(a->weight.data);
  const tgi_int4_layout l = tgi_int4_layout_of(&header);
  (void)ctx;
  for (int64_t first = 0; first < rows; first += kRowsAtOnce) {
    const int n = rows - first < kRowsAtOnce ? (int)(rows - first) : kRowsAtOnce;
    const void *x[kRowsAtOnce];
    double not_finite[kRowsAtOnce] = {0}; /* NaN if a value of x is not: so is every result then */
    for (int i = 0; i < n; i++) {
      x[i] = tgi_row(&a->x, first + i);
      for (int64_t k = 0; k < in; k++) {
        not_finite[i] += 0 * tgi_load(x[i], a->x.dtype, k);
      }
    }
    for (int64_t o = 0; o < out; o++) {
      double y[kRowsAtOnce];
      memcpy(y, not_finite, sizeof y);
      for (int64_t k = 0; k < in; k++) {
        const double w = tgi_round(a->x.dtype, weight_at(a->weight.data, &l, o, k));
        for (int i = 0; i < n; i++) {
          y[i] += tgi_load(x[i], a->x.dtype, k) * w;
        }
      }
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
