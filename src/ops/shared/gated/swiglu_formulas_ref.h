/**
 * The formulas of swiglu and swiglu_clamped for one element, for the references: every step through
 * tgi_round. Gradients are the factors of dy.
 */
#ifndef TGI_OPS_SWIGLU_FORMULAS_REF_H
#define TGI_OPS_SWIGLU_FORMULAS_REF_H

#include "ops/shared/gated/activation_ref.h"
#include "ops/shared/gated/gated_choice.h"

static inline double tgi_swiglu_ref(tg_dtype t, double gate, double up)
{
  return tgi_silu_ref(t, gate) * up;
}

static inline void tgi_swiglu_gradients_ref(tg_dtype t, double gate, double up, double *dgate,
                                            double *dup)
{
  *dgate = tgi_round(t, up * tgi_silu_grad_ref(t, gate));
  *dup = tgi_silu_ref(t, gate);
}

typedef struct swiglu_clamped_ref {
  double gate, up, s, glu;
} swiglu_clamped_ref;

/* Comparisons let NaN through. */
static inline swiglu_clamped_ref tgi_clamp_ref(tg_dtype t, float alpha, float limit, double gate,
                                               double up)
{
  const double most = tgi_round(t, (double)limit);
  swiglu_clamped_ref c = {.gate = gate > most ? most : gate,
                          .up = up > most    ? most
                                : up < -most ? -most
                                             : up};
  c.s = tgi_logistic_ref(t, tgi_round(t, (double)alpha * c.gate));
  c.glu = c.gate == -INFINITY ? 0 : tgi_round(t, c.gate * c.s);
  return c;
}

static inline double tgi_swiglu_clamped_ref(tg_dtype t, float alpha, float limit, double gate,
                                            double up)
{
  const swiglu_clamped_ref c = tgi_clamp_ref(t, alpha, limit, gate, up);
  return tgi_round(t, c.up + 1) * c.glu;
}

static inline void tgi_swiglu_clamped_gradients_ref(tg_dtype t, float alpha, float limit,
                                                    double gate, double up, double *dgate,
                                                    double *dup)
{
  const swiglu_clamped_ref c = tgi_clamp_ref(t, alpha, limit, gate, up);
  const double m = tgi_round(t, (double)alpha * c.gate);
  const double slope = isinf(m) ? 0 : tgi_round(t, m * tgi_round(t, c.s * tgi_round(t, 1 - c.s)));
  const double most = tgi_round(t, (double)limit);
  const double factor = tgi_round(t, tgi_round(t, c.up + 1) * tgi_round(t, c.s + slope));
  *dgate = gate <= most ? factor : 0;
  *dup = fabs(up) <= most ? c.glu : 0;
}

/** The chosen one. */
static inline double tgi_gated_choice_ref(tgi_gated_choice c, tg_dtype t, double gate, double up)
{
  return c.activation == TG_GATED_SWIGLU ? tgi_swiglu_ref(t, gate, up)
                                         : tgi_swiglu_clamped_ref(t, c.alpha, c.limit, gate, up);
}

static inline void tgi_gated_choice_gradients_ref(tgi_gated_choice c, tg_dtype t, double gate,
                                                  double up, double *dgate, double *dup)
{
  if (c.activation == TG_GATED_SWIGLU) {
    tgi_swiglu_gradients_ref(t, gate, up, dgate, dup);
  } else {
    tgi_swiglu_clamped_gradients_ref(t, c.alpha, c.limit, gate, up, dgate, dup);
  }
}

#endif
