/* Quantisation to 8 bits, reference: the contract's f32 operations, group by group. */
#include "core/values/quantize.h"
#include "ops/kernels.h"
#include "ops/shared/quantisation/quant_groups.h"

static float value(const tg_quantize_int8_fwd_args *a, int64_t i, int64_t j)
{
  return (float)tgi_load(tgi_row(&a->x, i), a->x.dtype, j);
}

static tgi_quant choose(const tg_quantize_int8_fwd_args *a, const tgi_quant_block *b)
{
  float low = 0, high = 0;
  for (int64_t i = b->row_begin; i < b->row_end; i++) {
    for (int64_t j = b->col_begin; j < b->col_end; j++) {
      const float x = value(a, i, j);
      low = x < low ? x : low;
      high = x > high ? x : high;
      if (isnan(x)) {
        return (tgi_quant){NAN, 0};
      }
    }
  }
  return tgi_present(&a->zero_point) ? tgi_int8_asymmetric(low, high)
                                     : tgi_int8_symmetric(low, high);
}

static int32_t quantize(float x, tgi_quant g, int32_t least)
{
  if (isnan(g.scale)) {
    return 0;
  }
  const float n = rintf(x / g.scale) + (float)g.zero_point;
  return n < (float)least ? least : n > 127 ? 127 : (int32_t)n;
}

tg_status TGI_KERNEL(quantize_int8_fwd)(const tg_context *ctx, const tg_quantize_int8_fwd_args *a)
{
  const bool asymmetric = tgi_present(&a->zero_point);
  (void)ctx;
  for (int64_t group = 0; group < a->scale.shape[0]; group++) {
    const tgi_quant_block b =
        tgi_quant_block_of(a->granularity, group, a->x.shape[0], a->x.shape[1]);
    const tgi_quant g = choose(a, &b);
    tgi_store(a->scale.data, a->scale.dtype, group, (double)g.scale);
    if (asymmetric) {
      tgi_store(a->zero_point.data, a->zero_point.dtype, group, g.zero_point);
    }
    for (int64_t i = b.row_begin; i < b.row_end; i++) {
      for (int64_t j = b.col_begin; j < b.col_end; j++) {
        const int32_t n = quantize(value(a, i, j), g, asymmetric ? -128 : -127);
        tgi_store(tgi_row(&a->q, i), TG_I8, j, n);
      }
    }
  }
  return TG_OK;
}
