/**
 * What the products with packed weights share around their sums: bias, rounding and the store of
 * one row's results for a panel.
 */
#ifndef TGI_OPS_PACKED_ROWS_H
#define TGI_OPS_PACKED_ROWS_H

#include "core/tensor_view.h"
#include "core/values/packed_weight.h"
#include "cpu/simd.h"

/** y[i, o0 ...] = value + bias for the rows of W of one panel that exist. */
static inline void tgi_put_panel_row(const tg_tensor *y, const tg_tensor *bias, int64_t i,
                                     int64_t o0, const float value[TGI_PANEL_ROWS])
{
  const int64_t n = tgi_min_i64(TGI_PANEL_ROWS, y->shape[1] - o0);
  void *row = tgi_row(y, i);
  for (int64_t j = 0; j < n; j += TGI_LANES) {
    const int64_t lanes = tgi_min_i64(TGI_LANES, n - j);
    vf v = vf_load_f32(value + j);
    if (tgi_present(bias)) {
      TGI_SWITCH_FLOAT(bias->dtype, T, v = v + vf_load_part(bias->data, T, o0 + j, lanes));
    }
    TGI_SWITCH_FLOAT(y->dtype, T, vf_store_part(row, T, o0 + j, lanes, v));
  }
}

#endif
