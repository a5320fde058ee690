/* Grouped linear layers with weights in MXFP4, reference: the contract's sums in f64, each result
 * through tgi_round. With 16-bit tensors it is what a plain implementation does that widens its
 * weights to the dtype first. */
#include "core/values/half.h"
#include "ops/grouped_linear_mxfp4/grouped_mxfp4_rows.h"
#include "ops/grouped_linear_mxfp4/mxfp4_packed.h"
#include "ops/shared/gated/swiglu_formulas_ref.h"

#include <math.h>

static double load_at(const tg_tensor *t, int64_t i, int64_t j)
{
  return tgi_load(tgi_row(t, i), t->dtype, j);
}

/* W[e,o,i] */
static double weight_at(const tg_tensor *weight, const tgi_mxfp4_layout *l, int64_t e, int64_t o,
                        int64_t i)
{
  const uint8_t *panel =
      (const uint8_t *)weight->data + tgi_mxfp4_panel_at(l, e, o / TGI_PANEL_ROWS);
  const uint8_t *group = panel + i / TGI_MXFP4_GROUP * TGI_MXFP4_GROUP_BYTES;
  const int64_t row = o % TGI_PANEL_ROWS, k = i % TGI_MXFP4_GROUP;
  const uint8_t *line = group + TGI_PANEL_ROWS + k / TGI_MXFP4_LINE_K * TGI_MXFP4_LINE_BYTES;
  const int byte = line[4 * row + k % TGI_MXFP4_LINE_K / 2];
  return ldexp(tgi_mxfp4_twice(k % 2 ? byte >> 4 : byte & 15), group[row] - 128);
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
static double z_of(const tg_grouped_linear_mxfp4_fwd_args *a, const tgi_mxfp4_layout *l, int64_t e,
                   int64_t from, int64_t o)
{
  double sum = 0;
  for (int64_t i = 0; i < a->x.shape[1]; i++) {
    sum += load_at(&a->x, from, i) * tgi_round(a->x.dtype, weight_at(&a->weight, l, e, o, i));
  }
  if (tgi_present(&a->bias)) {
    sum += load_at(&a->bias, e, o);
  }
  return tgi_round(a->y.dtype, sum);
}

static void put_z(const tg_grouped_linear_mxfp4_fwd_args *a, int64_t r, int64_t o, double z)
{
  if (tgi_present(&a->preactivation)) {
    tgi_store(tgi_row(&a->preactivation, r), a->y.dtype, o, z);
  }
}

static void put_y(const tg_grouped_linear_mxfp4_fwd_args *a, const tgi_mxfp4_layout *l,
                  const grouped_rows *g, int64_t e, int64_t r)
{
  const int64_t from = source_row(g, r), cols = a->y.shape[1];
  for (int64_t c = 0; c < cols; c++) {
    double y;
    if (a->activation == TG_GATED_NONE) {
      y = z_of(a, l, e, from, c);
    } else {
      const int64_t o = tgi_gate_column(a->packing, c), p = tgi_up_column(a->packing, cols, c);
      const double gate = z_of(a, l, e, from, o), up = z_of(a, l, e, from, p);
      put_z(a, r, o, gate);
      put_z(a, r, p, up);
      y = tgi_gated_choice_ref(TGI_GATED_CHOICE(a), a->y.dtype, gate, up);
    }
    tgi_store(tgi_row(&a->y, r), a->y.dtype, c, y);
  }
}

tg_status TGI_KERNEL(grouped_linear_mxfp4_fwd)(const tg_context *ctx,
                                               const tg_grouped_linear_mxfp4_fwd_args *a)
{
  const grouped_rows g = rows_of_mxfp4_fwd(a);
  const tgi_mxfp4_layout l = tgi_mxfp4_layout_of(outputs_of_mxfp4(a), a->x.shape[1]);
  const tg_status status = check_rows(ctx, "grouped_linear_mxfp4_fwd", &g);
  if (status != TG_OK) {
    return status;
  }
  for (int64_t e = 0; e < g.experts; e++) {
    for (int64_t r = first_row(&g, e); r < first_row(&g, e + 1); r++) {
      put_y(a, &l, &g, e, r);
    }
  }
  put_zeros(&a->y, first_row(&g, g.experts));
  if (tgi_present(&a->preactivation)) {
    put_zeros(&a->preactivation, first_row(&g, g.experts));
  }
  return TG_OK;
}

static void add_dbias(const tg_grouped_linear_mxfp4_bwd_args *a, const grouped_rows *g, int64_t e)
{
  for (int64_t o = 0; o < a->dy.shape[1]; o++) {
    double sum = 0;
    for (int64_t r = first_row(g, e); r < first_row(g, e + 1); r++) {
      sum += load_at(&a->dy, r, o);
    }
    tgi_store(tgi_row(&a->dbias, e), a->dbias.dtype, o,
              load_at(&a->dbias, e, o) + tgi_round(a->dbias.dtype, sum));
  }
}

tg_status TGI_KERNEL(grouped_linear_mxfp4_bwd)(const tg_context *ctx,
                                               const tg_grouped_linear_mxfp4_bwd_args *a)
{
  const grouped_rows g = rows_of_mxfp4_bwd(a);
  const tgi_mxfp4_layout l = tgi_mxfp4_layout_of(a->dy.shape[1], a->dx.shape[1]);
  const tg_status status = check_rows(ctx, "grouped_linear_mxfp4_bwd", &g);
  for (int64_t e = 0; e < g.experts && status == TG_OK; e++) {
    for (int64_t r = first_row(&g, e); r < first_row(&g, e + 1); r++) {
      for (int64_t i = 0; i < a->dx.shape[1]; i++) {
        double sum = 0;
        for (int64_t o = 0; o < a->dy.shape[1]; o++) {
          sum += load_at(&a->dy, r, o) * tgi_round(a->dx.dtype, weight_at(&a->weight, &l, e, o, i));
        }
        tgi_store(tgi_row(&a->dx, r), a->dx.dtype, i, tgi_round(a->dx.dtype, sum));
      }
    }
    if (tgi_present(&a->dbias) && first_row(&g, e) < first_row(&g, e + 1)) {
      add_dbias(a, &g, e);
    }
  }
  if (status == TG_OK) {
    put_zeros(&a->dx, first_row(&g, g.experts));
  }
  return status;
}
