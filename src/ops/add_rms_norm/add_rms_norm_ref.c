/* Residual addition and RMSNorm, reference: the rounded sum, then RMSNorm's reference. */
#include "ops/kernels.h"
#include "ops/shared/norms/rms_norm_reference.h"

tg_status TGI_KERNEL(add_rms_norm_fwd)(const tg_context *ctx, const tg_add_rms_norm_fwd_args *a)
{
  const tg_dtype t = a->x.dtype;
  (void)ctx;
  for (int64_t i = 0; i < a->x.shape[0]; i++) {
    const void *x = tgi_row(&a->x, i), *residual = tgi_row(&a->residual, i);
    for (int64_t j = 0; j < a->x.shape[1]; j++) {
      tgi_store(tgi_row(&a->sum, i), t, j, tgi_load(residual, t, j) + tgi_load(x, t, j));
    }
  }
  norm_reference_forward(&(tg_rms_norm_fwd_args){.x = a->sum,
                                                 .weight = a->weight,
                                                 .y = a->y,
                                                 .rstd = a->rstd,
                                                 .eps = a->eps,
                                                 .weight_offset = a->weight_offset,
                                                 .policy = a->policy});
  return TG_OK;
}

tg_status TGI_KERNEL(add_rms_norm_bwd)(const tg_context *ctx, const tg_add_rms_norm_bwd_args *a)
{
  (void)ctx;
  norm_reference_backward(&(tg_rms_norm_bwd_args){.dy = a->dy,
                                                  .x = a->sum,
                                                  .weight = a->weight,
                                                  .rstd = a->rstd,
                                                  .dx = a->dx,
                                                  .dweight = a->dweight,
                                                  .weight_offset = a->weight_offset},
                          tgi_present(&a->dsum) ? &a->dsum : NULL);
  return TG_OK;
}
