#include "ops/shared/rotation/rotation_words.h"

/* wf32: f32 weights with 16-bit q; dwf32: f32 accumulators. */
#define SYNTAX                                                                                     \
  TGI_ROTATION_SYNTAX "[_wf32][_norstd][_nodq][_nodk][_nodqweight][_nodkweight][_dwf32]"

const char tgi_qk_norm_rope_fwd_syntax[] = SYNTAX;
const char tgi_qk_norm_rope_bwd_syntax[] = SYNTAX;

/* Fields that both directions' structs share. */
#define FILL_SHARED(a, s, w)                                                                       \
  do {                                                                                             \
    const tg_dtype weight_dtype = tgi_shape_flag(s, "wf32") ? TG_F32 : (s)->dtype;                 \
    TGI_FILL_ROTATION(a, w);                                                                       \
    (a)->q = (w).q;                                                                                \
    (a)->k = (w).k;                                                                                \
    (a)->q_weight = (a)->k_weight = tg_tensor_1d(NULL, weight_dtype, (w).q.shape[3]);              \
    (a)->q_rstd = tg_tensor_view(NULL, TG_F32, 3, (w).q.shape);                                    \
    (a)->k_rstd = tg_tensor_view(NULL, TG_F32, 3, (w).k.shape);                                    \
  } while (0)

void tgi_qk_norm_rope_fwd_shape(tgi_shape *s, tg_qk_norm_rope_fwd_args *a)
{
  const tgi_rotation_words w = tgi_read_rotation(s);
  FILL_SHARED(a, s, w);
  if (tgi_shape_flag(s, "norstd")) {
    a->q_rstd = a->k_rstd = (tg_tensor){0};
  }
  a->q_out = w.q;
  a->k_out = w.k;
  a->eps = 1e-6f;
  a->rounding = w.rounding;
  (void)tgi_shape_flag(s, "nodq"), (void)tgi_shape_flag(s, "nodk");
  (void)tgi_shape_flag(s, "nodqweight"), (void)tgi_shape_flag(s, "nodkweight");
  (void)tgi_shape_flag(s, "dwf32");
}

/* Per element: four for the norm, three for the rotation. */
void tgi_qk_norm_rope_fwd_cost(const tg_qk_norm_rope_fwd_args *a, tgi_cost *cost)
{
  cost->flops = 7.0 * (double)(tgi_numel(&a->q) + tgi_numel(&a->k));
}

void tgi_qk_norm_rope_bwd_shape(tgi_shape *s, tg_qk_norm_rope_bwd_args *a)
{
  const tgi_rotation_words w = tgi_read_rotation(s);
  FILL_SHARED(a, s, w);
  (void)tgi_shape_flag(s, "norstd");
  a->dq_out = w.q;
  a->dk_out = w.k;
  const bool wide = tgi_shape_flag(s, "dwf32");
  const tg_tensor dweight = tg_tensor_1d(NULL, wide ? TG_F32 : a->q_weight.dtype, w.q.shape[3]);
  if (!tgi_shape_flag(s, "nodq")) {
    a->dq = w.q;
  }
  if (!tgi_shape_flag(s, "nodk")) {
    a->dk = w.k;
  }
  if (!tgi_shape_flag(s, "nodqweight")) {
    a->dq_weight = dweight;
  }
  if (!tgi_shape_flag(s, "nodkweight")) {
    a->dk_weight = dweight;
  }
}

void tgi_qk_norm_rope_bwd_cost(const tg_qk_norm_rope_bwd_args *a, tgi_cost *cost)
{
  cost->flops = 13.0 * (double)(tgi_numel(&a->q) + tgi_numel(&a->k));
}
