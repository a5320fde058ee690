/* Linear head and cross-entropy, reference. Logits are rounded to hidden's dtype, the loss is taken
 * in f32 (f64 tensors: not rounded at all), gradients of logits are rounded to hidden's dtype: what
 * eager code does that widens its logits for the loss. It keeps no logits: each is a sum over k
 * whenever it is needed. */
#include "ops/linear_cross_entropy/linear_cross_entropy_call.h"
#include "ops/shared/loss/cross_entropy_targets.h"

#include <float.h>

enum { kBlock = 512 }; /* gradients that wait for their sums in f64 */

static double load_at(const tg_tensor *t, int64_t i, int64_t j)
{
  return tgi_load(tgi_row(t, i), t->dtype, j);
}

static tg_dtype math_of(const lce_args *a)
{
  return a->hidden.dtype == TG_F64 ? TG_F64 : TG_F32;
}

static double logit(const lce_args *a, int64_t i, int64_t j)
{
  double sum = 0;
  for (int64_t k = 0; k < a->hidden.shape[1]; k++) {
    sum += load_at(&a->hidden, i, k) * load_at(&a->weight, j, k);
  }
  if (tgi_present(&a->bias)) {
    sum += tgi_load(a->bias.data, a->bias.dtype, j);
  }
  return tgi_round(a->hidden.dtype, sum);
}

/* z of the contract. */
static double capped(const lce_args *a, double x)
{
  const tg_dtype math = math_of(a);
  const double cap = (double)a->softcap;
  return cap == 0 ? x : tgi_round(math, cap * tgi_round(math, tanh(tgi_round(math, x / cap))));
}

typedef struct row_sums {
  double max, sum, z_sum, largest;
  int64_t argmax;
} row_sums;

/* One more logit of a row: the sum of exponentials is kept relative to the largest so far. */
static void add_logit(row_sums *s, double x, double z, int64_t j)
{
  if (z > s->max) {
    s->sum *= exp(s->max - z);
    s->max = z;
  }
  s->sum += exp(z - s->max);
  s->z_sum += z;
  if (j == 0 || (!isnan(s->largest) && (x > s->largest || isnan(x)))) {
    s->largest = x;
    s->argmax = j;
  }
}

static void put(const tg_tensor *t, int64_t i, double v)
{
  if (tgi_present(t)) {
    tgi_store(t->data, t->dtype, i, v);
  }
}

/* Writes the row's results; returns its loss. */
static double forward_row(const lce_args *a, int64_t i, int64_t target)
{
  const tg_dtype math = math_of(a);
  const int64_t vocab = a->weight.shape[0];
  const double smoothing = (double)a->label_smoothing;
  row_sums s = {.max = -DBL_MAX}; /* finite: a row of -infinity has lse -infinity */
  double hit = 0;
  for (int64_t j = 0; j < vocab; j++) {
    const double x = logit(a, i, j), z = capped(a, x);
    add_logit(&s, x, z, j);
    hit = j == target ? z : hit;
  }
  const double lse = tgi_round(math, s.max + log(s.sum));
  const double log_prob = tgi_round(math, hit - lse);
  double loss = -(1 - smoothing) * log_prob;
  if (smoothing > 0) {
    loss -= smoothing * (s.z_sum / (double)vocab - lse);
  }
  if (a->z_loss > 0) {
    loss += (double)a->z_loss * lse * lse;
  }
  loss = tgi_round(math, loss);
  put(&a->token_loss, i, loss);
  put(&a->log_prob, i, log_prob);
  put(&a->lse, i, lse);
  put(&a->argmax, i, (double)s.argmax);
  return loss;
}

static void forward(const lce_args *a, const target_rule *rule, int64_t counted)
{
  double sum = 0;
  for (int64_t i = 0; i < a->hidden.shape[0]; i++) {
    const int64_t target = tgi_load_int(a->targets.data, a->targets.dtype, i);
    double loss = 0;
    if (is_ignored(rule, target)) {
      put(&a->token_loss, i, 0);
      put(&a->log_prob, i, 0);
      put(&a->lse, i, 0);
      put(&a->argmax, i, -1);
    } else {
      loss = forward_row(a, i, target);
    }
    sum += loss;
    if (a->reduction == TG_REDUCTION_NONE) {
      put(&a->loss, i, loss);
    }
  }
  if (a->reduction != TG_REDUCTION_NONE) {
    put(&a->loss, 0, sum / divisor(rule, counted));
  }
}

typedef struct gradient_job {
  const lce_args *a;
  const target_rule *rule;
  double divisor;
} gradient_job;

static bool skips(const gradient_job *g, int64_t i)
{
  return is_ignored(g->rule, tgi_load_int(g->a->targets.data, g->a->targets.dtype, i));
}

/* dlogits[i,j] of a row that is not ignored. */
static double dlogit(const gradient_job *g, int64_t i, int64_t j)
{
  const lce_args *a = g->a;
  const double smoothing = (double)a->label_smoothing, cap = (double)a->softcap;
  const double z = capped(a, logit(a, i, j)), lse = tgi_load(a->lse.data, a->lse.dtype, i);
  const bool hit = j == tgi_load_int(a->targets.data, a->targets.dtype, i);
  double d = (1 + 2 * (double)a->z_loss * lse) * tgi_round(math_of(a), exp(z - lse));
  d -= smoothing / (double)a->weight.shape[0] + (hit ? 1 - smoothing : 0);
  if (cap > 0) {
    d *= 1 - z / cap * (z / cap);
  }
  return tgi_round(a->hidden.dtype, d * lce_upstream(a, i) / g->divisor);
}

static void hidden_gradient(const gradient_job *g, int64_t i, int64_t k0, int64_t n)
{
  const lce_args *a = g->a;
  double sum[kBlock] = {0};
  for (int64_t j = 0; j < a->weight.shape[0] && !skips(g, i); j++) {
    const double d = dlogit(g, i, j);
    for (int64_t k = 0; k < n; k++) {
      sum[k] += d * load_at(&a->weight, j, k0 + k);
    }
  }
  for (int64_t k = 0; k < n; k++) {
    tgi_store(tgi_row(&a->dhidden, i), a->dhidden.dtype, k0 + k, sum[k]);
  }
}

static void accumulate(const lce_args *a, const tg_tensor *t, void *row, int64_t j, double sum)
{
  const double old = a->overwrite ? 0 : tgi_load(row, t->dtype, j);
  tgi_store(row, t->dtype, j, old + tgi_round(t->dtype, sum));
}

static void weight_gradient(const gradient_job *g, int64_t j, int64_t k0, int64_t n)
{
  const lce_args *a = g->a;
  double sum[kBlock] = {0};
  for (int64_t i = 0; i < a->hidden.shape[0]; i++) {
    const double d = skips(g, i) ? 0 : dlogit(g, i, j);
    for (int64_t k = 0; k < n && !skips(g, i); k++) {
      sum[k] += d * load_at(&a->hidden, i, k0 + k);
    }
  }
  for (int64_t k = 0; k < n; k++) {
    accumulate(a, &a->dweight, tgi_row(&a->dweight, j), k0 + k, sum[k]);
  }
}

static void bias_gradient(const gradient_job *g, int64_t j)
{
  double sum = 0;
  for (int64_t i = 0; i < g->a->hidden.shape[0]; i++) {
    sum += skips(g, i) ? 0 : dlogit(g, i, j);
  }
  accumulate(g->a, &g->a->dbias, g->a->dbias.data, j, sum);
}

static void backward(const gradient_job *g)
{
  const lce_args *a = g->a;
  const int64_t rows = a->hidden.shape[0], size = a->hidden.shape[1], vocab = a->weight.shape[0];
  for (int64_t k = 0; k < size; k += kBlock) {
    const int64_t n = size - k < kBlock ? size - k : kBlock;
    for (int64_t i = 0; i < rows && tgi_present(&a->dhidden); i++) {
      hidden_gradient(g, i, k, n);
    }
    for (int64_t j = 0; j < vocab && tgi_present(&a->dweight); j++) {
      weight_gradient(g, j, k, n);
    }
  }
  for (int64_t j = 0; j < vocab && tgi_present(&a->dbias); j++) {
    bias_gradient(g, j);
  }
}

static tg_status run(const tg_context *ctx, const lce_args *a, const char *name)
{
  const target_rule rule = TARGET_RULE(name, a, a->weight.shape[0]);
  int64_t counted;
  const tg_status status = check_targets(ctx, &rule, &counted);
  if (status == TG_OK && lce_wants_loss(a)) {
    forward(a, &rule, counted);
  }
  if (status == TG_OK) {
    const gradient_job g = {a, &rule, divisor(&rule, counted)};
    backward(&g);
  }
  return status;
}

tg_status TGI_KERNEL(linear_cross_entropy_fwd)(const tg_context *ctx,
                                               const tg_linear_cross_entropy_fwd_args *a)
{
  const lce_args all = lce_forward(a);
  return run(ctx, &all, "linear_cross_entropy_fwd");
}

tg_status TGI_KERNEL(linear_cross_entropy_bwd)(const tg_context *ctx,
                                               const tg_linear_cross_entropy_bwd_args *a)
{
  const lce_args all = lce_backward(a);
  return run(ctx, &all, "linear_cross_entropy_bwd");
}

tg_status TGI_KERNEL(linear_cross_entropy_fwdbwd)(const tg_context *ctx,
                                                  const tg_linear_cross_entropy_fwdbwd_args *a)
{
  return run(ctx, a, "linear_cross_entropy_fwdbwd");
}
