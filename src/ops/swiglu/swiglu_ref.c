/* SwiGLU, reference: the contract's formulas step by step, each step through tgi_round: with f64
 * tensors this is the oracle, with 16-bit tensors the result of rounding after each step. */
#include "ops/kernels.h"
#include "ops/shared/gated/gated_ref.h"
#include "ops/shared/gated/swiglu_formulas_ref.h"

static double value(tg_dtype t, double gate, double up, const void *args)
{
  (void)args;
  return tgi_swiglu_ref(t, gate, up);
}

static void gradients(tg_dtype t, double gate, double up, const void *args, double *dgate,
                      double *dup)
{
  (void)args;
  tgi_swiglu_gradients_ref(t, gate, up, dgate, dup);
}

tg_status TGI_KERNEL(swiglu_fwd)(const tg_context *ctx, const tg_swiglu_fwd_args *a)
{
  (void)ctx;
  tgi_gated_fwd_ref(TGI_GATE_UP(a), &a->y, value, a);
  return TG_OK;
}

tg_status TGI_KERNEL(swiglu_bwd)(const tg_context *ctx, const tg_swiglu_bwd_args *a)
{
  (void)ctx;
  tgi_gated_bwd_ref(&a->dy, TGI_GATE_UP(a), TGI_DGATE_UP(a), gradients, a);
  return TG_OK;
}
