/* Grouped linear layers, reference: the contract's sums in f64, each result through tgi_round. */
#include "ops/grouped_linear/grouped_rows.h"
#include "ops/shared/gated/swiglu_formulas_ref.h"

static double load_at(const tg_tensor *t, int64_t i, int64_t j)
{
  return tgi_load(tgi_row(t, i), t->dtype, j);
}

/* weight[e,o,i] of the formula. */
static double weight_at(const tg_tensor *weight, bool in_first, int64_t e, int64_t o, int64_t i)
{
  const tg_tensor m = matrix_of(weight, e);
  return in_first ? load_at(&m, i, o) : load_at(&m, o, i);
}

static void put_zeros(const tg_tensor *t, int64_t first)
{
  for (int64_t r = first; r < t->shape[0]; r++) {
    for (int64_t j = 0; j < t->shape[1]; j++) {
      tgi_store(tgi_row(t, r), t->dtype, j, 0);
    }
  }
}

/* z[r,o] of row r of expert e, which multiplies row `from` of x. */
static double z_of(const tg_grouped_linear_fwd_args *a, int64_t e, int64_t from, int64_t o)
{
  double sum = 0;
  for (int64_t i = 0; i < a->x.shape[1]; i++) {
    sum += load_at(&a->x, from, i) * weight_at(&a->weight, a->in_first, e, o, i);
  }
  if (tgi_present(&a->bias)) {
    sum += load_at(&a->bias, e, o);
  }
  return tgi_round(a->y.dtype, sum);
}

static void put_z(const tg_grouped_linear_fwd_args *a, int64_t r, int64_t o, double z)
{
  if (tgi_present(&a->preactivation)) {
    tgi_store(tgi_row(&a->preactivation, r), a->y.dtype, o, z);
  }
}

static void put_y(const tg_grouped_linear_fwd_args *a, const grouped_rows *g, int64_t e, int64_t r)
{
  const int64_t from = source_row(g, r), cols = a->y.shape[1];
  for (int64_t c = 0; c < cols; c++) {
    double y;
    if (a->activation == TG_GATED_NONE) {
      y = z_of(a, e, from, c);
    } else {
      const int64_t o = tgi_gate_column(a->packing, c), p = tgi_up_column(a->packing, cols, c);
      const double gate = z_of(a, e, from, o), up = z_of(a, e, from, p);
      put_z(a, r, o, gate);
      put_z(a, r, p, up);
      y = tgi_gated_choice_ref(TGI_GATED_CHOICE(a), a->y.dtype, gate, up);
    }
    tgi_store(tgi_row(&a->y, r), a->y.dtype, c, y);
  }
}

tg_status TGI_KERNEL(grouped_linear_fwd)(const tg_context *ctx, const tg_grouped_linear_fwd_args *a)
{
  const grouped_rows g = rows_of_fwd(a);
  const tg_status status = check_rows(ctx, "grouped_linear_fwd", &g);
  if (status != TG_OK) {
    return status;
  }
  for (int64_t e = 0; e < g.experts; e++) {
    for (int64_t r = first_row(&g, e); r < first_row(&g, e + 1); r++) {
      put_y(a, &g, e, r);
    }
  }
  put_zeros(&a->y, first_row(&g, g.experts));
  if (tgi_present(&a->preactivation)) {
    put_zeros(&a->preactivation, first_row(&g, g.experts));
  }
  return TG_OK;
}

static void put_dx(const tg_grouped_linear_bwd_args *a, int64_t e, int64_t r)
{
  for (int64_t i = 0; i < a->dx.shape[1]; i++) {
    double sum = 0;
    for (int64_t o = 0; o < a->dy.shape[1]; o++) {
      sum += load_at(&a->dy, r, o) * weight_at(&a->weight, a->in_first, e, o, i);
    }
    tgi_store(tgi_row(&a->dx, r), a->dx.dtype, i, tgi_round(a->dx.dtype, sum));
  }
}

static void add_to(const tg_tensor *t, int64_t i, int64_t j, double sum, bool overwrite)
{
  const double old = overwrite ? 0 : load_at(t, i, j);
  tgi_store(tgi_row(t, i), t->dtype, j, old + tgi_round(t->dtype, sum));
}

static void add_dweight(const tg_grouped_linear_bwd_args *a, const grouped_rows *g, int64_t e)
{
  const tg_tensor to = matrix_of(&a->dweight, e);
  for (int64_t o = 0; o < a->dy.shape[1]; o++) {
    for (int64_t i = 0; i < a->x.shape[1]; i++) {
      double sum = 0;
      for (int64_t r = first_row(g, e); r < first_row(g, e + 1); r++) {
        sum += load_at(&a->dy, r, o) * load_at(&a->x, source_row(g, r), i);
      }
      add_to(&to, a->in_first ? i : o, a->in_first ? o : i, sum, a->overwrite);
    }
  }
}

static void add_dbias(const tg_grouped_linear_bwd_args *a, const grouped_rows *g, int64_t e)
{
  for (int64_t o = 0; o < a->dy.shape[1]; o++) {
    double sum = 0;
    for (int64_t r = first_row(g, e); r < first_row(g, e + 1); r++) {
      sum += load_at(&a->dy, r, o);
    }
    add_to(&a->dbias, e, o, sum, a->overwrite);
  }
}

tg_status TGI_KERNEL(grouped_linear_bwd)(const tg_context *ctx, const tg_grouped_linear_bwd_args *a)
{
  const grouped_rows g = rows_of_bwd(a);
  const tg_status status = check_rows(ctx, "grouped_linear_bwd", &g);
  for (int64_t e = 0; e < g.experts && status == TG_OK; e++) {
    const bool some = first_row(&g, e) < first_row(&g, e + 1);
    for (int64_t r = first_row(&g, e); tgi_present(&a->dx) && r < first_row(&g, e + 1); r++) {
      put_dx(a, e, r);
    }
    if (tgi_present(&a->dweight) && (some || a->overwrite)) {
      add_dweight(a, &g, e);
    }
    if (tgi_present(&a->dbias) && (some || a->overwrite)) {
      add_dbias(a, &g, e);
    }
  }
  if (tgi_present(&a->dx) && status == TG_OK) {
    put_zeros(&a->dx, first_row(&g, g.experts));
  }
  return status;
}
