/** What one AdamW step computes from its scalars alone, in f64. For its kernels and reference. */
#ifndef TGI_OPS_ADAMW_FACTORS_H
#define TGI_OPS_ADAMW_FACTORS_H

#include "core/values/half.h"
#include "ops/kernels.h"

typedef struct adamw_factors {
  double grad_scale;  /* grad_scale * clip */
  double decay;       /* 1 - lr * weight_decay */
  double blend1;      /* 1 - beta1 */
  double blend2;      /* 1 - beta2 */
  double step_size;   /* lr / (1 - beta1^step) */
  double correction2; /* sqrt(1 - beta2^step) */
} adamw_factors;

static inline double read_clip(const tg_adamw_step_args *a)
{
  return tgi_present(&a->clip) ? tgi_load(a->clip.data, a->clip.dtype, 0) : 1;
}

/** OK, or BAD_ARGUMENT with a message: a clip factor that refuses the step. */
static inline tg_status check_clip(const tg_context *ctx, const tg_adamw_step_args *a)
{
  const double clip = read_clip(a);
  if (isfinite(clip) && clip >= 0) {
    return TG_OK;
  }
  return tgi_report(ctx, TG_BAD_ARGUMENT,
                    "adamw_step: clip[0]: expected a finite number >= 0, got %g", clip);
}

static inline adamw_factors factors_of(const tg_adamw_step_args *a)
{
  return (adamw_factors){
      .grad_scale = (a->has_grad_scale ? a->grad_scale : 1) * read_clip(a),
      .decay = 1 - a->lr * a->weight_decay,
      .blend1 = 1 - a->beta1,
      .blend2 = 1 - a->beta2,
      .step_size = a->lr / (1 - pow(a->beta1, (double)a->step)),
      .correction2 = sqrt(1 - pow(a->beta2, (double)a->step)),
  };
}

#endif
