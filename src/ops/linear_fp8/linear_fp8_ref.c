/* Linear layers with e4m3 weights, reference. With f64 tensors this is the oracle; with 16-bit ones
 * it is what a plain implementation does that widens its weights to the dtype first. */
#include "core/values/half.h"
#include "ops/kernels.h"
#include "ops/linear_fp8/linear_fp8_packed.h"

enum { kRowsAtOnce = 16 }; /* of x, for which a value of W is widened once */

tg_status TGI_KERNEL(linear_fp8_fwd)(const tg_context *ctx, const tg_linear_fp8_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], in = a->x.shape[1], out = a->y.shape[1];
  (void)ctx;
  for (int64_t first = 0; first < rows; first += kRowsAtOnce) {
    const int n = rows - first < kRowsAtOnce ? (int)(rows - first) : kRowsAtOnce;
    const void *x[kRowsAtOnce];
    for (int i = 0; i < n; i++) {
      x[i] = tgi_row(&a->x, first + i);
    }
    for (int64_t o = 0; o < out; o++) {
      double y[kRowsAtOnce] = {0};
      for (int64_t k = 0; k < in; k++) {
        const uint8_t *block =
            (const uint8_t *)a->weight.data + tgi_fp8_block_at(o, k / TGI_FP8_BLOCK, in);
        const float value = tgi_f8_e4m3_to_f32(block[tgi_fp8_value_at(o, k % TGI_FP8_BLOCK)]);
        const double w = tgi_round(a->x.dtype, (double)value * (double)tgi_fp8_scale(block, o));
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
