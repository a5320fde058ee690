/* Experts' feed-forward blocks, reference: the contract's sums in f64, each result through
 * tgi_round. It keeps nothing between steps: what a sum runs over comes in blocks of columns, and
 * is computed again for each block of results. */
#include "ops/moe_mlp/experts_plan.h"
#include "ops/shared/gated/swiglu_formulas_ref.h"

enum { kBlock = 512 };

/* One copy of what every formula calls: inlined, they were most of the code. */
#define ONE_COPY static __attribute__((noinline))

ONE_COPY double load_at(const tg_tensor *t, int64_t i, int64_t j)
{
  return tgi_load(tgi_row(t, i), t->dtype, j);
}

/* weight[e,o,i] of the formulas. */
ONE_COPY double weight_at(const tg_tensor *weight, bool in_first, int64_t e, int64_t o, int64_t i)
{
  const tg_tensor m = matrix_of(weight, e);
  return in_first ? load_at(&m, i, o) : load_at(&m, o, i);
}

static double bias_at(const tg_tensor *bias, int64_t e, int64_t o)
{
  return tgi_present(bias) ? load_at(bias, e, o) : 0;
}

static int64_t block_end(int64_t first, int64_t end)
{
  return end - first < kBlock ? end : first + kBlock;
}

/* ---- forward ---- */

ONE_COPY double h_at(const tg_moe_mlp_fwd_args *a, int64_t e, int64_t t, int64_t c)
{
  double sum = bias_at(&a->gate_up_bias, e, c);
  for (int64_t i = 0; i < a->x.shape[1]; i++) {
    sum += load_at(&a->x, t, i) * weight_at(&a->gate_up, a->in_first, e, c, i);
  }
  return tgi_round(a->x.dtype, sum);
}

static double a_at(const tg_moe_mlp_fwd_args *a, int64_t cols, int64_t e, int64_t t, int64_t c)
{
  const double gate = h_at(a, e, t, tgi_gate_column(a->packing, c));
  const double up = h_at(a, e, t, tgi_up_column(a->packing, cols, c));
  return tgi_round(a->x.dtype, tgi_gated_choice_ref(TGI_GATED_CHOICE(a), a->x.dtype, gate, up));
}

/* Adds w times columns [i0, i1) of row r's z to the sums. */
static void add_z(const tg_moe_mlp_fwd_args *a, const grouped_rows *g, int64_t r, double w,
                  int64_t i0, int64_t i1, double *sums)
{
  const int64_t e = expert_of_row(g, r), t = source_row(g, r);
  const int64_t cols = a->down.shape[a->in_first ? 1 : 2];
  double z[kBlock];
  for (int64_t i = i0; i < i1; i++) {
    z[i - i0] = bias_at(&a->down_bias, e, i);
  }
  for (int64_t c = 0; c < cols; c++) {
    const double act = a_at(a, cols, e, t, c);
    for (int64_t i = i0; i < i1; i++) {
      z[i - i0] += act * weight_at(&a->down, a->in_first, e, i, c);
    }
  }
  for (int64_t i = i0; i < i1; i++) {
    sums[i - i0] += w * tgi_round(a->x.dtype, z[i - i0]);
  }
}

static void put_y(const tg_moe_mlp_fwd_args *a, const grouped_rows *g, int64_t t, int64_t i0,
                  int64_t i1)
{
  double sums[kBlock] = {0};
  for (int64_t j = 0; j < a->row.shape[1]; j++) {
    const int64_t r = row_of_slot(&a->row, t, j);
    if (r >= 0 && r < first_row(g, g->experts)) {
      add_z(a, g, r, load_at(&a->weights, t, j), i0, i1, sums);
    }
  }
  for (int64_t i = i0; i < i1; i++) {
    const double residual = tgi_present(&a->residual) ? load_at(&a->residual, t, i) : 0;
    tgi_store(tgi_row(&a->y, t), a->y.dtype, i, tgi_round(a->y.dtype, sums[i - i0] + residual));
  }
}

static void put_h(const tg_moe_mlp_fwd_args *a, const grouped_rows *g, int64_t r)
{
  const bool kept = r < first_row(g, g->experts);
  for (int64_t c = 0; c < a->preactivation.shape[1]; c++) {
    const double h = kept ? h_at(a, expert_of_row(g, r), source_row(g, r), c) : 0;
    tgi_store(tgi_row(&a->preactivation, r), a->preactivation.dtype, c, h);
  }
}

tg_status TGI_KERNEL(moe_mlp_fwd)(const tg_context *ctx, const tg_moe_mlp_fwd_args *a)
{
  const grouped_rows g = EXPERTS_ROWS(a);
  const int64_t hidden = a->y.shape[1];
  const tg_status status = check_plan(ctx, "moe_mlp_fwd", &g, &a->row);
  if (status != TG_OK) {
    return status;
  }
  for (int64_t t = 0; t < a->y.shape[0]; t++) {
    for (int64_t i = 0; i < hidden; i += kBlock) {
      put_y(a, &g, t, i, block_end(i, hidden));
    }
  }
  for (int64_t r = 0; tgi_present(&a->preactivation) && r < g.rows; r++) {
    put_h(a, &g, r);
  }
  return TG_OK;
}

/* ---- backward ---- */

/* One pair of columns of a row. */
typedef struct pair {
  double q, act, dgate, dup; /* q before the weight; gradients behind it */
} pair;

ONE_COPY pair pair_at(const tg_moe_mlp_bwd_args *a, const grouped_rows *g, int64_t r, int64_t c)
{
  const tg_dtype dtype = a->x.dtype;
  const tgi_gated_choice choice = TGI_GATED_CHOICE(a);
  const int64_t e = expert_of_row(g, r), t = source_row(g, r);
  const int64_t cols = a->preactivation.shape[1] / 2;
  const double gate = load_at(&a->preactivation, r, tgi_gate_column(a->packing, c));
  const double up = load_at(&a->preactivation, r, tgi_up_column(a->packing, cols, c));
  double q = 0, dgate, dup;
  for (int64_t i = 0; i < a->dy.shape[1]; i++) {
    q += load_at(&a->dy, t, i) * weight_at(&a->down, a->in_first, e, i, c);
  }
  q = tgi_round(dtype, q);
  tgi_gated_choice_gradients_ref(choice, dtype, gate, up, &dgate, &dup);
  const double da = tgi_round(dtype, weight_of_row(g, &a->weights, r) * q);
  return (pair){.q = q,
                .act = tgi_round(dtype, tgi_gated_choice_ref(choice, dtype, gate, up)),
                .dgate = tgi_round(dtype, da * dgate),
                .dup = tgi_round(dtype, da * dup)};
}

static void put_dx(const tg_moe_mlp_bwd_args *a, const grouped_rows *g, int64_t t, int64_t i0,
                   int64_t i1)
{
  const int64_t cols = a->preactivation.shape[1] / 2;
  double sums[kBlock] = {0};
  for (int64_t j = 0; j < a->row.shape[1]; j++) {
    const int64_t r = row_of_slot(&a->row, t, j);
    double of_row[kBlock] = {0};
    for (int64_t c = 0; r >= 0 && r < first_row(g, g->experts) && c < cols; c++) {
      const int64_t e = expert_of_row(g, r), gate = tgi_gate_column(a->packing, c);
      const int64_t up = tgi_up_column(a->packing, cols, c);
      const pair p = pair_at(a, g, r, c);
      for (int64_t i = i0; i < i1; i++) {
        of_row[i - i0] += p.dgate * weight_at(&a->gate_up, a->in_first, e, gate, i) +
                          p.dup * weight_at(&a->gate_up, a->in_first, e, up, i);
      }
    }
    for (int64_t i = i0; i < i1; i++) {
      sums[i - i0] += tgi_round(a->x.dtype, of_row[i - i0]);
    }
  }
  for (int64_t i = i0; i < i1; i++) {
    tgi_store(tgi_row(&a->dx, t), a->dx.dtype, i, tgi_round(a->dx.dtype, sums[i - i0]));
  }
}

static void put_dweights(const tg_moe_mlp_bwd_args *a, const grouped_rows *g, int64_t t, int64_t j)
{
  const int64_t r = row_of_slot(&a->row, t, j), cols = a->preactivation.shape[1] / 2;
  double sum = 0;
  if (r >= 0 && r < first_row(g, g->experts)) {
    for (int64_t c = 0; c < cols; c++) {
      const pair p = pair_at(a, g, r, c);
      sum += p.q * p.act;
    }
    for (int64_t i = 0; i < a->dy.shape[1]; i++) {
      sum += load_at(&a->dy, source_row(g, r), i) * bias_at(&a->down_bias, expert_of_row(g, r), i);
    }
  }
  tgi_store(tgi_row(&a->dweights, t), a->dweights.dtype, j, tgi_round(a->dweights.dtype, sum));
}

static void put_dh(const tg_moe_mlp_bwd_args *a, const grouped_rows *g, int64_t r)
{
  const int64_t cols = a->dpreactivation.shape[1] / 2;
  void *to = tgi_row(&a->dpreactivation, r);
  for (int64_t c = 0; c < cols; c++) {
    const bool kept = r < first_row(g, g->experts);
    const pair p = kept ? pair_at(a, g, r, c) : (pair){0};
    tgi_store(to, a->x.dtype, tgi_gate_column(a->packing, c), p.dgate);
    tgi_store(to, a->x.dtype, tgi_up_column(a->packing, cols, c), p.dup);
  }
}

ONE_COPY void add_to(const tg_tensor *t, int64_t i, int64_t j, double sum, bool overwrite)
{
  const double old = overwrite ? 0 : load_at(t, i, j);
  tgi_store(tgi_row(t, i), t->dtype, j, old + tgi_round(t->dtype, sum));
}

static void add_weight(const tg_tensor *t, bool in_first, bool overwrite, int64_t e, int64_t o,
                       int64_t i, double sum)
{
  if (tgi_present(t)) {
    const tg_tensor m = matrix_of(t, e);
    add_to(&m, in_first ? i : o, in_first ? o : i, sum, overwrite);
  }
}

/* Of columns [i0, i1) of hidden and one pair of the experts' width. */
static void add_weights(const tg_moe_mlp_bwd_args *a, const grouped_rows *g, int64_t e, int64_t c,
                        int64_t i0, int64_t i1)
{
  double gate[kBlock] = {0}, up[kBlock] = {0}, down[kBlock] = {0};
  const int64_t cols = a->preactivation.shape[1] / 2;
  for (int64_t r = first_row(g, e); r < first_row(g, e + 1); r++) {
    const int64_t t = source_row(g, r);
    const pair p = pair_at(a, g, r, c);
    const double wa = tgi_round(a->x.dtype, weight_of_row(g, &a->weights, r) * p.act);
    for (int64_t i = i0; i < i1; i++) {
      gate[i - i0] += p.dgate * load_at(&a->x, t, i);
      up[i - i0] += p.dup * load_at(&a->x, t, i);
      down[i - i0] += wa * load_at(&a->dy, t, i);
    }
  }
  for (int64_t i = i0; i < i1; i++) {
    add_weight(&a->dgate_up, a->in_first, a->overwrite, e, tgi_gate_column(a->packing, c), i,
               gate[i - i0]);
    add_weight(&a->dgate_up, a->in_first, a->overwrite, e, tgi_up_column(a->packing, cols, c), i,
               up[i - i0]);
    add_weight(&a->ddown, a->in_first, a->overwrite, e, i, c, down[i - i0]);
  }
}

static void add_biases(const tg_moe_mlp_bwd_args *a, const grouped_rows *g, int64_t e)
{
  const int64_t cols = a->preactivation.shape[1] / 2;
  for (int64_t c = 0; tgi_present(&a->dgate_up_bias) && c < cols; c++) {
    double gate = 0, up = 0;
    for (int64_t r = first_row(g, e); r < first_row(g, e + 1); r++) {
      const pair p = pair_at(a, g, r, c);
      gate += p.dgate;
      up += p.dup;
    }
    add_to(&a->dgate_up_bias, e, tgi_gate_column(a->packing, c), gate, a->overwrite);
    add_to(&a->dgate_up_bias, e, tgi_up_column(a->packing, cols, c), up, a->overwrite);
  }
  for (int64_t i = 0; tgi_present(&a->ddown_bias) && i < a->ddown_bias.shape[1]; i++) {
    double sum = 0;
    for (int64_t r = first_row(g, e); r < first_row(g, e + 1); r++) {
      sum += weight_of_row(g, &a->weights, r) * load_at(&a->dy, source_row(g, r), i);
    }
    add_to(&a->ddown_bias, e, i, sum, a->overwrite);
  }
}

static void add_parameters(const tg_moe_mlp_bwd_args *a, const grouped_rows *g)
{
  const int64_t cols = a->preactivation.shape[1] / 2, hidden = a->x.shape[1];
  const bool weights = tgi_present(&a->dgate_up) || tgi_present(&a->ddown);
  for (int64_t e = 0; e < g->experts; e++) {
    if (first_row(g, e) == first_row(g, e + 1) && !a->overwrite) {
      continue;
    }
    for (int64_t c = 0; weights && c < cols; c++) {
      for (int64_t i = 0; i < hidden; i += kBlock) {
        add_weights(a, g, e, c, i, block_end(i, hidden));
      }
    }
    add_biases(a, g, e);
  }
}

tg_status TGI_KERNEL(moe_mlp_bwd)(const tg_context *ctx, const tg_moe_mlp_bwd_args *a)
{
  const grouped_rows g = EXPERTS_ROWS(a);
  const int64_t hidden = a->x.shape[1];
  const tg_status status = check_plan(ctx, "moe_mlp_bwd", &g, &a->row);
  if (status != TG_OK) {
    return status;
  }
  for (int64_t t = 0; t < a->x.shape[0]; t++) {
    for (int64_t i = 0; tgi_present(&a->dx) && i < hidden; i += kBlock) {
      put_dx(a, &g, t, i, block_end(i, hidden));
    }
    for (int64_t j = 0; tgi_present(&a->dweights) && j < a->row.shape[1]; j++) {
      put_dweights(a, &g, t, j);
    }
  }
  add_parameters(a, &g);
  for (int64_t r = 0; tgi_present(&a->dpreactivation) && r < g.rows; r++) {
    put_dh(a, &g, r); /* last: it may replace the pre-activation */
  }
  return TG_OK;
}
