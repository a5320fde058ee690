/** Rotating one pair in f64, each step through tgi_round; the references' share of rotation.h. */
#ifndef TGI_OPS_ROTATION_REF_H
#define TGI_OPS_ROTATION_REF_H

#include "core/values/half.h"
#include "ops/shared/rotation/rotation.h"

/** The values of the tables that a pair reads. */
typedef struct tgi_pair_angles {
  double cos[2], sin[2]; /* of the first and of the second element */
} tgi_pair_angles;

static inline tgi_pair_angles tgi_angles_of(const tgi_rotation *r, int64_t b, int64_t t,
                                            int64_t pair)
{
  const void *cos = tgi_table_row(r, &r->cos, b, t), *sin = tgi_table_row(r, &r->sin, b, t);
  const int64_t first = r->wide ? tgi_first_of_pair(r, pair) : pair;
  const int64_t second = r->wide ? tgi_second_of_pair(r, pair) : pair;
  return (tgi_pair_angles){
      {tgi_load(cos, r->cos.dtype, first), tgi_load(cos, r->cos.dtype, second)},
      {tgi_load(sin, r->sin.dtype, first), tgi_load(sin, r->sin.dtype, second)}};
}

/** x[0] and x[1] rotated into y; `step` is the dtype of every step. */
static inline void tgi_rotate_pair(const tgi_pair_angles *g, const double *x, double *y,
                                   tg_dtype step)
{
  y[0] = tgi_round(step, x[0] * g->cos[0]) - tgi_round(step, x[1] * g->sin[0]);
  y[1] = tgi_round(step, x[1] * g->cos[1]) + tgi_round(step, x[0] * g->sin[1]);
}

/** The transpose of tgi_rotate_pair. */
static inline void tgi_rotate_pair_back(const tgi_pair_angles *g, const double *dy, double *dx,
                                        tg_dtype step)
{
  dx[0] = tgi_round(step, dy[0] * g->cos[0]) + tgi_round(step, dy[1] * g->sin[1]);
  dx[1] = tgi_round(step, dy[1] * g->cos[1]) - tgi_round(step, dy[0] * g->sin[0]);
}

/** The dtype to which a forward's steps are rounded. */
static inline tg_dtype tgi_step_dtype(tg_dtype x, tg_rounding rounding)
{
  return rounding == TG_ROUNDING_HF || x == TG_F64 ? x : TG_F32;
}

#endif
