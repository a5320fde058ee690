/* Values of packed 4-bit integers, reference. */
#include "core/values/half.h"
#include "ops/kernels.h"
#include "ops/shared/quantisation/group_rules.h"

tg_status TGI_KERNEL(dequantize_int4_fwd)(const tg_context *ctx,
                                          const tg_dequantize_int4_fwd_args *a)
{
  const int64_t cols = a->x.shape[1], groups = tgi_groups_of(cols, a->group_size);
  const float most = tgi_largest_finite(a->x.dtype);
  (void)ctx;
  for (int64_t i = 0; i < a->x.shape[0]; i++) {
    const uint8_t *q = tgi_row(&a->q, i);
    for (int64_t j = 0; j < cols; j++) {
      const int64_t group = i * groups + j / a->group_size;
      const int zero_point =
          tgi_present(&a->zero_point) ? ((const uint8_t *)a->zero_point.data)[group] : 8;
      const int n = (j % 2 ? q[j / 2] >> 4 : q[j / 2] & 15) - zero_point;
      const float x = (float)n * (float)tgi_load(a->scale.data, a->scale.dtype, group);
      const float kept = x > most ? most : x < -most ? -most : x;
      tgi_store(tgi_row(&a->x, i), a->x.dtype, j, (double)kept);
    }
  }
  return TG_OK;
}
