/* SiLU, reference; ops/shared/gated/activation_ref.h has the formulas. */
#include "ops/kernels.h"
#include "ops/shared/gated/activation_ref.h"

tg_status TGI_KERNEL(silu_fwd)(const tg_context *ctx, const tg_silu_fwd_args *a)
{
  const tg_dtype t = a->x.dtype;
  (void)ctx;
  for (int64_t i = 0; i < a->x.shape[0]; i++) {
    const void *x = tgi_row(&a->x, i);
    void *y = tgi_row(&a->y, i);
    for (int64_t j = 0; j < a->x.shape[1]; j++) {
      tgi_store(y, t, j, tgi_silu_ref(t, tgi_load(x, t, j)));
    }
  }
  return TG_OK;
}

tg_status TGI_KERNEL(silu_bwd)(const tg_context *ctx, const tg_silu_bwd_args *a)
{
  const tg_dtype t = a->x.dtype;
  (void)ctx;
  for (int64_t i = 0; i < a->x.shape[0]; i++) {
    const void *x = tgi_row(&a->x, i), *dy = tgi_row(&a->dy, i);
    void *dx = tgi_row(&a->dx, i);
    for (int64_t j = 0; j < a->x.shape[1]; j++) {
      tgi_store(dx, t, j, tgi_load(dy, t, j) * tgi_silu_grad_ref(t, tgi_load(x, t, j)));
    }
  }
  return TG_OK;
}
