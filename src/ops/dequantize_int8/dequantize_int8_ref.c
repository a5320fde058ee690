/* Values of 8-bit integers, reference: the contract's f32 operations, group by group. */
#include "core/values/half.h"
#include "ops/kernels.h"
#include "ops/shared/quantisation/quant_groups.h"

tg_status TGI_KERNEL(dequantize_int8_fwd)(const tg_context *ctx,
                                          const tg_dequantize_int8_fwd_args *a)
{
  const float most = tgi_largest_finite(a->x.dtype);
  (void)ctx;
  for (int64_t group = 0; group < a->scale.shape[0]; group++) {
    const tgi_quant_block b =
        tgi_quant_block_of(a->granularity, group, a->q.shape[0], a->q.shape[1]);
    const float scale = (float)tgi_load(a->scale.data, a->scale.dtype, group);
    const float zero_point = tgi_present(&a->zero_point)
                                 ? (float)tgi_load(a->zero_point.data, a->zero_point.dtype, group)
                                 : 0;
    for (int64_t i = b.row_begin; i < b.row_end; i++) {
      for (int64_t j = b.col_begin; j < b.col_end; j++) {
        const float n = (float)((const int8_t *)tgi_row(&a->q, i))[j] - zero_point;
        const float x = n * scale;
        const float kept = x > most ? most : x < -most ? -most : x;
        tgi_store(tgi_row(&a->x, i), a->x.dtype, j, (double)kept);
      }
    }
  }
  return TG_OK;
}
