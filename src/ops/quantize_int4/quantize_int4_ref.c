/* Quantisation to 4 bits, reference: the contract's f32 operations, group by group. */
#include "core/values/quantize.h"
#include "ops/kernels.h"
#include "ops/shared/quantisation/group_rules.h"

static int32_t quantize(float x, tgi_quant g)
{
  if (isnan(g.scale)) {
    return g.zero_point;
  }
  const float n = rintf(x / g.scale) + (float)g.zero_point;
  return n < 0 ? 0 : n > 15 ? 15 : (int32_t)n;
}

static tgi_quant choose(const tg_quantize_int4_fwd_args *a, const void *x, int64_t begin,
                        int64_t end)
{
  float low = 0, high = 0;
  for (int64_t j = begin; j < end && !isnan(low); j++) {
    const float v = (float)tgi_load(x, a->x.dtype, j);
    low = v < low || isnan(v) ? v : low;
    high = v > high || isnan(v) ? v : high;
  }
  return tgi_present(&a->zero_point) ? tgi_int4_asymmetric(low, high, a->scale.dtype)
                                     : tgi_int4_symmetric(low, high, a->scale.dtype);
}

tg_status TGI_KERNEL(quantize_int4_fwd)(const tg_context *ctx, const tg_quantize_int4_fwd_args *a)
{
  const int64_t cols = a->x.shape[1], groups = tgi_groups_of(cols, a->group_size);
  (void)ctx;
  for (int64_t i = 0; i < a->x.shape[0]; i++) {
    const void *x = tgi_row(&a->x, i);
    uint8_t *q = tgi_row(&a->q, i);
    for (int64_t k = 0; k < groups; k++) {
      const int64_t begin = k * a->group_size;
      const int64_t end = begin + a->group_size < cols ? begin + a->group_size : cols;
      const tgi_quant g = choose(a, x, begin, end);
      tgi_store(a->scale.data, a->scale.dtype, i * groups + k, (double)g.scale);
      if (tgi_present(&a->zero_point)) {
        tgi_store(a->zero_point.data, TG_U8, i * groups + k, g.zero_point);
      }
      for (int64_t j = begin; j < end; j++) {
        const int32_t n = quantize((float)tgi_load(x, a->x.dtype, j), g);
        q[j / 2] = (uint8_t)(j % 2 ? q[j / 2] | n << 4 : n);
      }
    }
  }
  return TG_OK;
}
