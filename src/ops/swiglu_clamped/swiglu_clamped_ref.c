/* Clamped SwiGLU, reference: the contract's formulas step by step, each step through tgi_round:
 * with f64 tensors this is the oracle, with 16-bit tensors the result of rounding after each step.
 */
#include "ops/kernels.h"
#include "ops/shared/gated/activation_ref.h"
#include "ops/shared/gated/gated_ref.h"

typedef struct clamped {
  double gate, up, s, glu;
} clamped;

/* Comparisons let NaN through. */
static clamped clamp(tg_dtype t, float alpha, float limit, double gate, double up)
{
  const double most = tgi_round(t, (double)limit);
  clamped c = {.gate = gate > most ? most : gate, .up = up > most ? most : up < -most ? -most : up};
  c.s = tgi_logistic_ref(t, tgi_round(t, (double)alpha * c.gate));
  c.glu = c.gate == -INFINITY ? 0 : tgi_round(t, c.gate * c.s);
  return c;
}

static double value(tg_dtype t, double gate, double up, const void *args)
{
  const tg_swiglu_clamped_fwd_args *a = args;
  const clamped c = clamp(t, a->alpha, a->limit, gate, up);
  return tgi_round(t, c.up + 1) * c.glu;
}

static void gradients(tg_dtype t, double gate, double up, const void *args, double *dgate,
                      double *dup)
{
  const tg_swiglu_clamped_bwd_args *a = args;
  const clamped c = clamp(t, a->alpha, a->limit, gate, up);
  const double m = tgi_round(t, (double)a->alpha * c.gate);
  const double slope = isinf(m) ? 0 : tgi_round(t, m * tgi_round(t, c.s * tgi_round(t, 1 - c.s)));
  const double limit = tgi_round(t, (double)a->limit);
  const double factor = tgi_round(t, tgi_round(t, c.up + 1) * tgi_round(t, c.s + slope));
  *dgate = gate <= limit ? factor : 0;
  *dup = fabs(up) <= limit ? c.glu : 0;
}

tg_status TGI_KERNEL(swiglu_clamped_fwd)(const tg_context *ctx, const tg_swiglu_clamped_fwd_args *a)
{
  (void)ctx;
  tgi_gated_fwd_ref(TGI_GATE_UP(a), &a->y, value, a);
  return TG_OK;
}

tg_status TGI_KERNEL(swiglu_clamped_bwd)(const tg_context *ctx, const tg_swiglu_clamped_bwd_args *a)
{
  (void)ctx;
  tgi_gated_bwd_ref(&a->dy, TGI_GATE_UP(a), TGI_DGATE_UP(a), gradients, a);
  return TG_OK;
}
