/* RMSNorm gated by SiLU, reference. Every rounding of the contract passes through tgi_round: with
 * f64 tensors this is the oracle, with 16-bit tensors the naive result that rounds after each step.
 */
#include "core/values/half.h"
#include "ops/kernels.h"

static double logistic(double v)
{
  return 1 / (1 + exp(-v));
}

static double silu(double v)
{
  return isinf(v) && v < 0 ? 0 : v * logistic(v);
}

static double silu_grad(double v)
{
  const double s = logistic(v);
  return isinf(v) ? s : s * (1 + v * logistic(-v));
}

tg_status TGI_KERNEL(rms_norm_swiglu_fwd)(const tg_context *ctx,
                                          const tg_rms_norm_swiglu_fwd_args *a)
{
  const int64_t cols = a->x.shape[1];
  const tg_dtype t = a->x.dtype, math = t == TG_F64 ? TG_F64 : TG_F32;
  const bool rounds = a->rounding == TG_ROUNDING_HF;
  (void)ctx;
  for (int64_t i = 0; i < a->x.shape[0]; i++) {
    const void *x = tgi_row(&a->x, i), *gate = tgi_row(&a->gate, i);
    double sum = 0;
    for (int64_t j = 0; j < cols; j++) {
      sum += tgi_load(x, t, j) * tgi_load(x, t, j);
    }
    const double rstd = tgi_round(math, 1 / sqrt(sum / (double)cols + (double)a->eps));
    for (int64_t j = 0; j < cols; j++) {
      const double n = tgi_round(rounds ? t : math, tgi_load(x, t, j) * rstd);
      const double m = tgi_round(rounds ? a->weight.dtype : math,
                                 n * tgi_load(a->weight.data, a->weight.dtype, j));
      const double s = tgi_round(math, silu(tgi_load(gate, t, j)));
      tgi_store(tgi_row(&a->y, i), t, j, tgi_round(math, m * s));
    }
    if (tgi_present(&a->rstd)) {
      tgi_store(a->rstd.data, a->rstd.dtype, i, rstd);
    }
  }
  return TG_OK;
}

/* The terms of the contract at one element. */
typedef struct element {
  double dy, n, u, w, gate;
} element;

static element element_at(const tg_rms_norm_swiglu_bwd_args *a, int64_t i, int64_t j)
{
  const tg_dtype t = a->x.dtype;
  element e = {.dy = tgi_load(tgi_row(&a->dy, i), t, j),
               .w = tgi_load(a->weight.data, a->weight.dtype, j),
               .gate = tgi_load(tgi_row(&a->gate, i), t, j)};
  const double rstd = tgi_load(a->rstd.data, a->rstd.dtype, i);
  e.n = tgi_round(t, tgi_load(tgi_row(&a->x, i), t, j) * rstd);
  e.u = tgi_round(t, e.dy * tgi_round(t, silu(e.gate)));
  return e;
}

/* Both results are written element by element, since either may alias dy or gate. */
static void write_row(const tg_rms_norm_swiglu_bwd_args *a, int64_t i)
{
  const int64_t cols = a->x.shape[1];
  const tg_dtype t = a->x.dtype;
  const double rstd = tgi_load(a->rstd.data, a->rstd.dtype, i);
  double dot = 0;
  for (int64_t j = 0; j < cols; j++) {
    const element e = element_at(a, i, j);
    dot += tgi_round(t, e.u * e.w) * e.n;
  }
  for (int64_t j = 0; j < cols; j++) {
    const element e = element_at(a, i, j);
    if (tgi_present(&a->dx)) {
      const double g = tgi_round(t, e.u * e.w);
      tgi_store(tgi_row(&a->dx, i), t, j, rstd * tgi_round(t, g - e.n * (dot / (double)cols)));
    }
    if (tgi_present(&a->dgate)) {
      const double m = tgi_round(t, e.n * e.w);
      tgi_store(tgi_row(&a->dgate, i), t, j, tgi_round(t, e.dy * m) * silu_grad(e.gate));
    }
  }
}

tg_status TGI_KERNEL(rms_norm_swiglu_bwd)(const tg_context *ctx,
                                          const tg_rms_norm_swiglu_bwd_args *a)
{
  const tg_tensor *dw = &a->dweight;
  (void)ctx;
  for (int64_t j = 0; j < a->x.shape[1] && tgi_present(dw); j++) {
    double sum = tgi_load(dw->data, dw->dtype, j);
    for (int64_t i = 0; i < a->x.shape[0]; i++) {
      const element e = element_at(a, i, j);
      sum += tgi_round(a->x.dtype, e.u * e.n);
    }
    tgi_store(dw->data, dw->dtype, j, sum);
  }
  /* After dweight, which reads inputs that dx and dgate may alias. */
  for (int64_t i = 0; i < a->x.shape[0]; i++) {
    write_row(a, i);
  }
  return TG_OK;
}
