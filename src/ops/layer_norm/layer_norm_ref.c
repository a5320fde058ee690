/* LayerNorm, reference. Every rounding of the contract passes through tgi_round: with f64 tensors
 * this is the oracle, with 16-bit tensors the naive result that rounds after each step. */
#include "core/values/half.h"
#include "ops/kernels.h"

/* Mean of a row and 1 / its standard deviation. */
static double mean_of_row(const void *x, tg_dtype t, int64_t cols)
{
  double sum = 0;
  for (int64_t j = 0; j < cols; j++) {
    sum += tgi_load(x, t, j);
  }
  return sum / (double)cols;
}

static double rstd_of_row(const void *x, tg_dtype t, int64_t cols, double mean, double eps)
{
  double sum = 0;
  for (int64_t j = 0; j < cols; j++) {
    const double d = tgi_load(x, t, j) - mean;
    sum += d * d;
  }
  return 1 / sqrt(sum / (double)cols + eps);
}

/* n of the contract, rounded in the dtype of x. */
static double normalised(const void *x, tg_dtype t, int64_t j, double mean, double rstd)
{
  return tgi_round(t, tgi_round(t, tgi_load(x, t, j) - mean) * rstd);
}

tg_status TGI_KERNEL(layer_norm_fwd)(const tg_context *ctx, const tg_layer_norm_fwd_args *a)
{
  const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
  const tg_dtype xt = a->x.dtype, wt = a->weight.dtype;
  const tg_dtype math = xt == TG_F64 ? TG_F64 : TG_F32;
  (void)ctx;
  for (int64_t i = 0; i < rows; i++) {
    const void *x = tgi_row(&a->x, i);
    void *y = tgi_row(&a->y, i);
    const double exact = mean_of_row(x, xt, cols), mean = tgi_round(math, exact);
    const double rstd = tgi_round(math, rstd_of_row(x, xt, cols, exact, (double)a->eps));
    for (int64_t j = 0; j < cols; j++) {
      const double n = normalised(x, xt, j, mean, rstd);
      const double scaled = tgi_round(xt, n * tgi_load(a->weight.data, wt, j));
      const double b = tgi_present(&a->bias) ? tgi_load(a->bias.data, wt, j) : 0;
      tgi_store(y, a->y.dtype, j, scaled + b);
    }
    if (tgi_present(&a->mean)) {
      tgi_store(a->mean.data, a->mean.dtype, i, mean);
    }
    if (tgi_present(&a->rstd)) {
      tgi_store(a->rstd.data, a->rstd.dtype, i, rstd);
    }
  }
  return TG_OK;
}

typedef struct bwd_row {
  const tg_layer_norm_bwd_args *a;
  const void *dy, *x;
  double mean, rstd;
} bwd_row;

static bwd_row row_of(const tg_layer_norm_bwd_args *a, int64_t i)
{
  return (bwd_row){.a = a,
                   .dy = tgi_row(&a->dy, i),
                   .x = tgi_row(&a->x, i),
                   .mean = tgi_load(a->mean.data, a->mean.dtype, i),
                   .rstd = tgi_load(a->rstd.data, a->rstd.dtype, i)};
}

static double n_of(const bwd_row *r, int64_t j)
{
  return normalised(r->x, r->a->x.dtype, j, r->mean, r->rstd);
}

static double g_of(const bwd_row *r, int64_t j)
{
  const double w = tgi_load(r->a->weight.data, r->a->weight.dtype, j);
  return tgi_round(r->a->x.dtype, tgi_load(r->dy, r->a->dy.dtype, j) * w);
}

/* past: row of dresidual; NULL: none. */
static void write_dx_row(const bwd_row *r, const void *past, void *dx)
{
  const int64_t cols = r->a->x.shape[1];
  const tg_dtype t = r->a->x.dtype;
  double sum = 0, dot = 0;
  for (int64_t j = 0; j < cols; j++) {
    sum += g_of(r, j);
    dot += g_of(r, j) * n_of(r, j);
  }
  const double mean_g = sum / (double)cols, mean_gn = dot / (double)cols;
  for (int64_t j = 0; j < cols; j++) {
    const double centred = tgi_round(t, g_of(r, j) - mean_g);
    const double own = r->rstd * tgi_round(t, centred - tgi_round(t, n_of(r, j) * mean_gn));
    tgi_store(dx, t, j, past ? tgi_load(past, t, j) + tgi_round(t, own) : own);
  }
}

tg_status TGI_KERNEL(layer_norm_bwd)(const tg_context *ctx, const tg_layer_norm_bwd_args *a)
{
  const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
  const tg_tensor *dw = &a->dweight, *db = &a->dbias;
  (void)ctx;
  for (int64_t j = 0; j < cols; j++) {
    double weight_sum = 0, bias_sum = 0;
    for (int64_t i = 0; i < rows; i++) {
      const bwd_row r = row_of(a, i);
      const double dy = tgi_load(r.dy, a->dy.dtype, j);
      weight_sum += tgi_round(a->x.dtype, dy * n_of(&r, j));
      bias_sum += dy;
    }
    if (tgi_present(dw)) {
      tgi_store(dw->data, dw->dtype, j, tgi_load(dw->data, dw->dtype, j) + weight_sum);
    }
    if (tgi_present(db)) {
      tgi_store(db->data, db->dtype, j, tgi_load(db->data, db->dtype, j) + bias_sum);
    }
  }
  /* After the sums, since dx may alias dy. */
  for (int64_t i = 0; i < rows && tgi_present(&a->dx); i++) {
    const bwd_row r = row_of(a, i);
    const void *past = tgi_present(&a->dresidual) ? tgi_row(&a->dresidual, i) : NULL;
    write_dx_row(&r, past, tgi_row(&a->dx, i));
  }
  return TG_OK;
}
