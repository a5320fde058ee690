/* Global norm, reference: one sum in f64. */
#include "core/values/half.h"
#include "ops/kernels.h"

tg_status TGI_KERNEL(global_norm_fwd)(const tg_context *ctx, const tg_global_norm_fwd_args *a)
{
  double sum = 0;
  (void)ctx;
  for (int64_t i = 0; i < a->num_tensors; i++) {
    const tg_tensor *t = &a->tensors[i];
    for (int64_t k = 0; k < tgi_numel(t); k++) {
      sum += tgi_load(t->data, t->dtype, k) * tgi_load(t->data, t->dtype, k);
    }
  }
  const double norm = tgi_round(a->norm.dtype, sqrt(sum));
  tgi_store(a->norm.data, a->norm.dtype, 0, norm);
  if (tgi_present(&a->clip)) {
    const double clip = isfinite(norm) ? fmin(1, (double)a->max_norm / (norm + 1e-6)) : NAN;
    tgi_store(a->clip.data, a->clip.dtype, 0, clip);
  }
  return TG_OK;
}
