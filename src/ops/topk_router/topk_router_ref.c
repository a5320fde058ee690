/* Top-k router, reference: each index is the first in rank of what is left. Every rounding passes
 * through tgi_round: with f64 tensors this is the oracle, with 16-bit ones the result of rounding
 * after each step. */
#include "ops/topk_router/router_rows.h"

/* The library has one copy of each here, not one for each call. */
static double rounded(tg_dtype dtype, double v)
{
  return tgi_round(dtype, v);
}

static double load(const void *data, tg_dtype dtype, int64_t i)
{
  return tgi_load(data, dtype, i);
}

static void store(void *data, tg_dtype dtype, int64_t i, double v)
{
  tgi_store(data, dtype, i, v);
}

/* A row of logits, and what its exponentials are relative to. */
typedef struct row {
  const void *logits;
  tg_dtype dtype;
  int64_t experts;
  double largest, sum; /* sum of all exponentials */
  bool has_nan;
} row;

static double logit(const row *r, int64_t e)
{
  return load(r->logits, r->dtype, e);
}

static double exponential(const row *r, int64_t e)
{
  return rounded(r->dtype, exp(rounded(r->dtype, logit(r, e) - r->largest)));
}

static double probability(const row *r, int64_t e)
{
  return r->has_nan ? NAN : rounded(r->dtype, exponential(r, e) / r->sum);
}

static row read_row(const tg_tensor *logits, int64_t t)
{
  row r = {tgi_row(logits, t), logits->dtype, logits->shape[1], -INFINITY, 0, false};
  for (int64_t e = 0; e < r.experts; e++) {
    r.largest = fmax(r.largest, logit(&r, e));
    r.has_nan = r.has_nan || isnan(logit(&r, e));
  }
  for (int64_t e = 0; e < r.experts; e++) {
    r.sum += exponential(&r, e);
  }
  return r;
}

/* Whether expert e comes behind expert `before` (-1: none) by rank. */
static bool is_behind(const row *r, int64_t e, int64_t before)
{
  return before < 0 || logit(r, e) < logit(r, before) ||
         (logit(r, e) == logit(r, before) && e > before);
}

static void select_experts(const row *r, const tg_tensor *indices, int64_t t)
{
  int64_t before = -1;
  for (int64_t j = 0; j < indices->shape[1]; j++) {
    int64_t best = r->has_nan ? j : -1;
    for (int64_t e = 0; e < r->experts && !r->has_nan; e++) {
      if (is_behind(r, e, before) && (best < 0 || logit(r, e) > logit(r, best))) {
        best = e;
      }
    }
    put_expert(indices, t, j, best);
    before = best;
  }
}

/* Weight j of a row; `sum` is that of the selected exponentials. */
static double weight(const row *r, tg_router_scoring scoring, int64_t e, double sum)
{
  if (scoring == TG_ROUTER_ALL || r->has_nan) {
    return probability(r, e);
  }
  return rounded(r->dtype, exponential(r, e) / sum);
}

static double selected_sum(const row *r, const tg_tensor *indices, int64_t t)
{
  double sum = 0;
  for (int64_t j = 0; j < indices->shape[1]; j++) {
    sum += exponential(r, expert_at(indices, t, j));
  }
  return sum;
}

static void add_to(const tg_tensor *sums, int64_t e, double v)
{
  store(sums->data, sums->dtype, e, load(sums->data, sums->dtype, e) + v);
}

static void count_token(const tg_topk_router_fwd_args *a, const row *r, int64_t t)
{
  for (int64_t j = 0; j < a->indices.shape[1] && tgi_present(&a->counts); j++) {
    add_to(&a->counts, expert_at(&a->indices, t, j), 1);
  }
  for (int64_t e = 0; e < r->experts && tgi_present(&a->prob_sum); e++) {
    add_to(&a->prob_sum, e, probability(r, e));
  }
}

static void clear(const tg_tensor *sums)
{
  for (int64_t e = 0; tgi_present(sums) && e < sums->shape[0]; e++) {
    store(sums->data, sums->dtype, e, 0);
  }
}

tg_status TGI_KERNEL(topk_router_fwd)(const tg_context *ctx, const tg_topk_router_fwd_args *a)
{
  (void)ctx;
  clear(&a->counts);
  clear(&a->prob_sum);
  for (int64_t t = 0; t < a->logits.shape[0]; t++) {
    const row r = read_row(&a->logits, t);
    select_experts(&r, &a->indices, t);
    const double sum = selected_sum(&r, &a->indices, t);
    for (int64_t j = 0; j < a->indices.shape[1]; j++) {
      store(tgi_row(&a->weights, t), a->weights.dtype, j,
            weight(&r, a->scoring, expert_at(&a->indices, t, j), sum));
    }
    if (token_is_counted(&a->token_mask, t)) {
      count_token(a, &r, t);
    }
  }
  return TG_OK;
}

/* dot, and of the auxiliary loss sum_i(p * dprob_sum); 0 without it or for a token that is not
 * counted. */
typedef struct sums {
  double selected, dot, auxiliary;
  bool counted;
} sums;

static double weighted(const tg_topk_router_bwd_args *a, const row *r, const sums *s, int64_t t,
                       int64_t j)
{
  const double dw = load(tgi_row(&a->dweights, t), a->dweights.dtype, j);
  const double w = weight(r, a->scoring, expert_at(&a->indices, t, j), s->selected);
  const double away = a->scoring == TG_ROUTER_ALL ? dw : rounded(r->dtype, dw - s->dot);
  return rounded(r->dtype, w * away);
}

static double dprob_sum_at(const tg_topk_router_bwd_args *a, int64_t e)
{
  return load(a->dprob_sum.data, a->dprob_sum.dtype, e);
}

static sums sum_row(const tg_topk_router_bwd_args *a, const row *r, int64_t t)
{
  sums s = {.selected = selected_sum(r, &a->indices, t),
            .counted = tgi_present(&a->dprob_sum) && token_is_counted(&a->token_mask, t)};
  for (int64_t j = 0; j < a->indices.shape[1]; j++) {
    const double w = weight(r, a->scoring, expert_at(&a->indices, t, j), s.selected);
    s.dot += w * load(tgi_row(&a->dweights, t), a->dweights.dtype, j);
  }
  s.dot = rounded(r->dtype, s.dot);
  for (int64_t e = 0; e < r->experts && s.counted; e++) {
    s.auxiliary += probability(r, e) * dprob_sum_at(a, e);
  }
  return s;
}

static double gradient(const tg_topk_router_bwd_args *a, const row *r, const sums *s, int64_t t,
                       int64_t e)
{
  double d = 0;
  for (int64_t j = 0; j < a->indices.shape[1]; j++) {
    d += expert_at(&a->indices, t, j) == e ? weighted(a, r, s, t, j) : 0;
  }
  if (a->scoring == TG_ROUTER_ALL) {
    d -= rounded(r->dtype, probability(r, e) * s->dot);
  }
  if (s->counted) {
    const double away = rounded(r->dtype, dprob_sum_at(a, e) - s->auxiliary);
    d += rounded(r->dtype, probability(r, e) * away);
  }
  return d;
}

tg_status TGI_KERNEL(topk_router_bwd)(const tg_context *ctx, const tg_topk_router_bwd_args *a)
{
  const tg_status status = check_experts(ctx, a);
  for (int64_t t = 0; t < a->logits.shape[0] && status == TG_OK; t++) {
    const row r = read_row(&a->logits, t);
    const sums s = sum_row(a, &r, t);
    for (int64_t e = 0; e < r.experts; e++) {
      store(tgi_row(&a->dlogits, t), a->dlogits.dtype, e, gradient(a, &r, &s, t, e));
    }
  }
  return status;
}
