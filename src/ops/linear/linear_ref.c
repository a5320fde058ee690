/* Linear layers, reference. Every rounding of a plain implementation passes through tgi_round: with
 * f64 tensors this is the oracle, with 16-bit tensors the result of rounding after each step. With
 * two f32 tensors and allow_tf32 it rounds both factors of a product. */
#include "core/values/half.h"
#include "ops/kernels.h"

static const double kPi = 3.14159265358979323846;

static double load_at(const tg_tensor *t, int64_t i, int64_t j)
{
  return tgi_load(tgi_row(t, i), t->dtype, j);
}

/* x y, both in TF32 if they may be. */
static double product(bool allow_tf32, tg_dtype xt, double x, tg_dtype yt, double y)
{
  const bool rounds = allow_tf32 && xt == TG_F32 && yt == TG_F32;
  return rounds ? tgi_round_tf32(x) * tgi_round_tf32(y) : x * y;
}

static double activate(tg_activation activation, double z)
{
  const double inner = sqrt(2 / kPi) * (z + 0.044715 * z * z * z);
  switch (activation) {
  case TG_ACTIVATION_GELU_TANH:
    return z * (1 + tanh(inner)) / 2;
  case TG_ACTIVATION_GELU_ERF:
    return z * erfc(-z / sqrt(2)) / 2;
  default:
    return z;
  }
}

static double derivative(tg_activation activation, double z)
{
  const double inner = sqrt(2 / kPi) * (z + 0.044715 * z * z * z), t = tanh(inner);
  switch (activation) {
  case TG_ACTIVATION_GELU_TANH:
    return (1 + t) / 2 + z * (1 - t * t) * sqrt(2 / kPi) * (1 + 3 * 0.044715 * z * z) / 2;
  case TG_ACTIVATION_GELU_ERF:
    return erfc(-z / sqrt(2)) / 2 + z * exp(-z * z / 2) / sqrt(2 * kPi);
  default:
    return 1;
  }
}

tg_status TGI_KERNEL(linear_fwd)(const tg_context *ctx, const tg_linear_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], in = a->x.shape[1], out = a->weight.shape[0];
  const tg_dtype yt = a->y.dtype;
  (void)ctx;
  for (int64_t i = 0; i < rows; i++) {
    const void *x = tgi_row(&a->x, i);
    for (int64_t o = 0; o < out; o++) {
      const void *w = tgi_row(&a->weight, o);
      double z = 0;
      for (int64_t k = 0; k < in; k++) {
        z += product(a->allow_tf32, a->x.dtype, tgi_load(x, a->x.dtype, k), a->weight.dtype,
                     tgi_load(w, a->weight.dtype, k));
      }
      if (tgi_present(&a->bias)) {
        z += tgi_load(a->bias.data, a->bias.dtype, o);
      }
      z = tgi_round(yt, z);
      if (tgi_present(&a->preactivation)) {
        tgi_store(tgi_row(&a->preactivation, i), yt, o, z);
      }
      double y = tgi_round(yt, activate(a->activation, z));
      if (tgi_present(&a->residual)) {
        y += load_at(&a->residual, i, o);
      }
      tgi_store(tgi_row(&a->y, i), yt, o, y);
    }
  }
  return TG_OK;
}

/* dz[i,o] of the contract. */
static double upstream(const tg_linear_bwd_args *a, int64_t i, int64_t o)
{
  const double dy = load_at(&a->dy, i, o);
  if (a->activation == TG_ACTIVATION_NONE) {
    return dy;
  }
  return tgi_round(a->dy.dtype, dy * derivative(a->activation, load_at(&a->preactivation, i, o)));
}

static void add_to(const tg_tensor *t, void *row, int64_t j, double sum, bool overwrite)
{
  const double old = overwrite ? 0 : tgi_load(row, t->dtype, j);
  tgi_store(row, t->dtype, j, old + tgi_round(t->dtype, sum));
}

tg_status TGI_KERNEL(linear_bwd)(const tg_context *ctx, const tg_linear_bwd_args *a)
{
  const int64_t rows = a->x.shape[0], in = a->x.shape[1], out = a->weight.shape[0];
  (void)ctx;
  for (int64_t i = 0; i < rows && tgi_present(&a->dx); i++) {
    for (int64_t k = 0; k < in; k++) {
      double sum = 0;
      for (int64_t o = 0; o < out; o++) {
        sum += product(a->allow_tf32, a->dy.dtype, upstream(a, i, o), a->weight.dtype,
                       load_at(&a->weight, o, k));
      }
      tgi_store(tgi_row(&a->dx, i), a->dx.dtype, k, sum);
    }
  }
  for (int64_t o = 0; o < out && tgi_present(&a->dweight); o++) {
    for (int64_t k = 0; k < in; k++) {
      double sum = 0;
      for (int64_t i = 0; i < rows; i++) {
        sum += product(a->allow_tf32, a->dy.dtype, upstream(a, i, o), a->x.dtype,
                       load_at(&a->x, i, k));
      }
      add_to(&a->dweight, tgi_row(&a->dweight, o), k, sum, a->overwrite);
    }
  }
  for (int64_t o = 0; o < out && tgi_present(&a->dbias); o++) {
    double sum = 0;
    for (int64_t i = 0; i < rows; i++) {
      sum += upstream(a, i, o);
    }
    add_to(&a->dbias, a->dbias.data, o, sum, a->overwrite);
  }
  return TG_OK;
}
