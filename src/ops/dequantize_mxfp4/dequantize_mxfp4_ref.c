/* Values of MXFP4, reference. */
#include "core/values/half.h"
#include "ops/kernels.h"

#include <math.h>

static double value(int code, int scale)
{
  static const double magnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const double v = ldexp(magnitudes[code & 7], scale - 127);
  return code & 8 ? -v : v;
}

tg_status TGI_KERNEL(dequantize_mxfp4_fwd)(const tg_context *ctx,
                                           const tg_dequantize_mxfp4_fwd_args *a)
{
  const int64_t groups = a->scales.shape[1], cols = a->x.shape[1];
  const uint8_t *blocks = a->blocks.data, *scales = a->scales.data;
  (void)ctx;
  for (int64_t i = 0; i < a->x.shape[0]; i++) {
    for (int64_t j = 0; j < cols; j++) {
      const int byte = blocks[(i * cols + j) / 2];
      tgi_store(tgi_row(&a->x, i), a->x.dtype, j,
                value(j % 2 ? byte >> 4 : byte & 15, scales[i * groups + j / 32]));
    }
  }
  return TG_OK;
}
