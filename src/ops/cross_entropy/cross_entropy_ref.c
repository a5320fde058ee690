/* Cross-entropy, reference. Each step is rounded to f32 (f64 logits: not at all), the gradient to
 * dlogits' dtype at the end: what eager code does that widens its logits first. */
#include "ops/cross_entropy/cross_entropy_call.h"
#include "ops/shared/loss/cross_entropy_targets.h"

#include <float.h>

static tg_dtype math_of(const tg_tensor *logits)
{
  return logits->dtype == TG_F64 ? TG_F64 : TG_F32;
}

static double capped(const tg_tensor *logits, double softcap, int64_t i, int64_t j)
{
  const tg_dtype math = math_of(logits);
  const double x = tgi_load(tgi_row(logits, i), logits->dtype, j);
  if (softcap == 0) {
    return x;
  }
  return tgi_round(math, softcap * tgi_round(math, tanh(tgi_round(math, x / softcap))));
}

static double log_sum_exp(const tg_tensor *logits, double softcap, int64_t i)
{
  const tg_dtype math = math_of(logits);
  double max = -DBL_MAX, sum = 0; /* finite: a row of -infinity has lse -infinity */
  for (int64_t j = 0; j < logits->shape[1]; j++) {
    max = fmax(max, capped(logits, softcap, i, j));
  }
  for (int64_t j = 0; j < logits->shape[1]; j++) {
    sum += tgi_round(math, exp(tgi_round(math, capped(logits, softcap, i, j) - max)));
  }
  return tgi_round(math, max + tgi_round(math, log(tgi_round(math, sum))));
}

static int64_t find_largest(const tg_tensor *logits, int64_t i)
{
  int64_t best = 0;
  double largest = tgi_load(tgi_row(logits, i), logits->dtype, 0);
  for (int64_t j = 1; j < logits->shape[1] && !isnan(largest); j++) {
    const double x = tgi_load(tgi_row(logits, i), logits->dtype, j);
    if (x > largest || isnan(x)) {
      largest = x;
      best = j;
    }
  }
  return best;
}

typedef struct row_result {
  double loss, log_prob, lse;
  int64_t argmax;
} row_result;

static row_result one_row(const tg_cross_entropy_fwd_args *a, int64_t i, int64_t target)
{
  const int64_t vocab = a->logits.shape[1];
  const tg_dtype math = math_of(&a->logits);
  const double smoothing = (double)a->label_smoothing;
  row_result r = {.argmax = find_largest(&a->logits, i)};
  r.lse = log_sum_exp(&a->logits, (double)a->softcap, i);
  r.log_prob = tgi_round(math, capped(&a->logits, (double)a->softcap, i, target) - r.lse);
  r.loss = tgi_round(math, -(1 - smoothing) * r.log_prob);
  if (smoothing > 0) {
    double sum = 0;
    for (int64_t j = 0; j < vocab; j++) {
      sum += tgi_round(math, capped(&a->logits, (double)a->softcap, i, j) - r.lse);
    }
    r.loss = tgi_round(math, r.loss - tgi_round(math, smoothing * sum / (double)vocab));
  }
  if (a->z_loss > 0) {
    r.loss = tgi_round(math, r.loss + tgi_round(math, (double)a->z_loss * r.lse * r.lse));
  }
  return r;
}

static void put(const tg_tensor *t, int64_t i, double v)
{
  if (tgi_present(t)) {
    tgi_store(t->data, t->dtype, i, v);
  }
}

/* The row's results, written; also of an ignored row. */
static row_result forward_row(const tg_cross_entropy_fwd_args *a, int64_t i, int64_t target,
                              bool skip)
{
  const row_result r = skip ? (row_result){.argmax = -1} : one_row(a, i, target);
  put(&a->token_loss, i, r.loss);
  put(&a->log_prob, i, r.log_prob);
  put(&a->lse, i, r.lse);
  put(&a->argmax, i, (double)r.argmax);
  if (a->reduction == TG_REDUCTION_NONE) {
    put(&a->loss, i, r.loss);
  }
  return r;
}

static void put_sum(const tg_cross_entropy_fwd_args *a, double sum, double n)
{
  if (a->reduction != TG_REDUCTION_NONE) {
    put(&a->loss, 0, sum / n);
  }
}

tg_status TGI_KERNEL(cross_entropy_fwd)(const tg_context *ctx, const tg_cross_entropy_fwd_args *a)
{
  const target_rule rule = TARGET_RULE("cross_entropy_fwd", a, a->logits.shape[1]);
  int64_t counted;
  double sum = 0;
  const tg_status status = check_targets(ctx, &rule, &counted);
  for (int64_t i = 0; i < a->logits.shape[0] && status == TG_OK; i++) {
    const int64_t target = tgi_load_int(a->targets.data, a->targets.dtype, i);
    sum += forward_row(a, i, target, is_ignored(&rule, target)).loss;
  }
  if (status == TG_OK) {
    put_sum(a, sum, divisor(&rule, counted));
  }
  return status;
}

/* The gradient in `upstream` times the contract's g and the softcap's derivative. */
static double gradient(const tg_cross_entropy_bwd_args *a, int64_t i, int64_t j, int64_t target,
                       double lse, double upstream)
{
  const tg_dtype math = math_of(&a->logits);
  const double cap = (double)a->softcap, smoothing = (double)a->label_smoothing;
  const double z = capped(&a->logits, cap, i, j);
  const double p = tgi_round(math, exp(tgi_round(math, z - lse)));
  const double scale = tgi_round(math, 1 + 2 * (double)a->z_loss * lse);
  double g = tgi_round(math, scale * p);
  g = tgi_round(math, g - smoothing / (double)a->logits.shape[1]);
  if (j == target) {
    g = tgi_round(math, g - (1 - smoothing));
  }
  if (cap > 0) {
    const double t = tgi_round(math, z / cap);
    g = tgi_round(math, g * tgi_round(math, 1 - t * t));
  }
  return tgi_round(math, g * upstream);
}

/* dlogits may be logits: each element is read for itself alone. */
static void backward_row(const tg_cross_entropy_bwd_args *a, int64_t i, int64_t target, bool skip,
                         double lse, double n)
{
  double upstream = 1;
  if (tgi_present(&a->dloss)) {
    const int64_t k = a->reduction == TG_REDUCTION_NONE ? i : 0;
    upstream = tgi_load(a->dloss.data, a->dloss.dtype, k);
  }
  upstream = tgi_round(math_of(&a->logits), upstream / n);
  for (int64_t j = 0; j < a->logits.shape[1]; j++) {
    tgi_store(tgi_row(&a->dlogits, i), a->dlogits.dtype, j,
              skip ? 0 : gradient(a, i, j, target, lse, upstream));
  }
}

tg_status TGI_KERNEL(cross_entropy_bwd)(const tg_context *ctx, const tg_cross_entropy_bwd_args *a)
{
  const target_rule rule = TARGET_RULE("cross_entropy_bwd", a, a->logits.shape[1]);
  int64_t counted;
  const tg_status status = check_targets(ctx, &rule, &counted);
  for (int64_t i = 0; i < a->logits.shape[0] && status == TG_OK; i++) {
    const int64_t target = tgi_load_int(a->targets.data, a->targets.dtype, i);
    backward_row(a, i, target, is_ignored(&rule, target), tgi_load(a->lse.data, a->lse.dtype, i),
                 divisor(&rule, counted));
  }
  return status;
}

tg_status TGI_KERNEL(cross_entropy_fwdbwd)(const tg_context *ctx,
                                           const tg_cross_entropy_fwdbwd_args *a)
{
  const tg_cross_entropy_fwd_args f = forward_of(a);
  const tg_cross_entropy_bwd_args b = backward_of(a);
  const target_rule rule = TARGET_RULE("cross_entropy_fwdbwd", a, a->logits.shape[1]);
  int64_t counted;
  double sum = 0;
  const tg_status status = check_targets(ctx, &rule, &counted);
  for (int64_t i = 0; i < a->logits.shape[0] && status == TG_OK; i++) {
    const int64_t target = tgi_load_int(a->targets.data, a->targets.dtype, i);
    const bool skip = is_ignored(&rule, target);
    const row_result r = forward_row(&f, i, target, skip);
    backward_row(&b, i, target, skip, r.lse, divisor(&rule, counted));
    sum += r.loss;
  }
  if (status == TG_OK) {
    put_sum(&f, sum, divisor(&rule, counted));
  }
  return status;
}
