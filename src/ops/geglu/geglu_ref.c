/* GeGLU, reference: the contract's formulas step by step, each step through tgi_round: with f64
 * tensors this is the oracle, with 16-bit tensors the result of rounding after each step. */
#include "ops/kernels.h"
#include "ops/shared/gated/activation_ref.h"
#include "ops/shared/gated/gated_ref.h"

static double value(tg_dtype t, double gate, double up, const void *args)
{
  const tg_geglu_fwd_args *a = args;
  return tgi_gelu_ref(t, a->approximation, gate) * up;
}

static void gradients(tg_dtype t, double gate, double up, const void *args, double *dgate,
                      double *dup)
{
  const tg_geglu_bwd_args *a = args;
  *dgate = tgi_round(t, up * tgi_gelu_grad_ref(t, a->approximation, gate));
  *dup = tgi_gelu_ref(t, a->approximation, gate);
}

tg_status TGI_KERNEL(geglu_fwd)(const tg_context *ctx, const tg_geglu_fwd_args *a)
{
  (void)ctx;
  tgi_gated_fwd_ref(TGI_GATE_UP(a), &a->y, value, a);
  return TG_OK;
}

tg_status TGI_KERNEL(geglu_bwd)(const tg_context *ctx, const tg_geglu_bwd_args *a)
{
  (void)ctx;
  tgi_gated_bwd_ref(&a->dy, TGI_GATE_UP(a), TGI_DGATE_UP(a), gradients, a);
  return TG_OK;
}
