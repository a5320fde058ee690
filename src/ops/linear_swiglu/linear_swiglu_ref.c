/* Two linear layers and SwiGLU, reference: the contract's formulas step by step, each step through
 * tgi_round: with f64 tensors this is the oracle, with 16-bit tensors the result of rounding after
 * each step. */
#include "core/values/half.h"
#include "ops/kernels.h"
#include "ops/shared/gated/swiglu_formulas_ref.h"

static double product(const tg_linear_swiglu_fwd_args *a, const tg_tensor *weight, int64_t i,
                      int64_t o)
{
  double sum = 0;
  for (int64_t k = 0; k < a->x.shape[1]; k++) {
    sum +=
        tgi_load(tgi_row(&a->x, i), a->x.dtype, k) * tgi_load(tgi_row(weight, o), weight->dtype, k);
  }
  return tgi_round(a->y.dtype, sum);
}

static void save(const tg_tensor *t, int64_t i, int64_t o, double v)
{
  if (tgi_present(t)) {
    tgi_store(tgi_row(t, i), t->dtype, o, v);
  }
}

tg_status TGI_KERNEL(linear_swiglu_fwd)(const tg_context *ctx, const tg_linear_swiglu_fwd_args *a)
{
  (void)ctx;
  for (int64_t i = 0; i < a->y.shape[0]; i++) {
    for (int64_t o = 0; o < a->y.shape[1]; o++) {
      const double gate = product(a, &a->gate_weight, i, o), up = product(a, &a->up_weight, i, o);
      save(&a->gate, i, o, gate);
      save(&a->up, i, o, up);
      save(&a->y, i, o, tgi_swiglu_ref(a->y.dtype, gate, up));
    }
  }
  return TG_OK;
}
