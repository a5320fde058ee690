/* AdamW, reference: each line of the contract rounded to the dtype that it is kept in. */
#include "ops/adamw/adamw_factors.h"

static double load_at(const tg_tensor *t, int64_t k)
{
  return tgi_load(t->data, t->dtype, k);
}

static void update_element(const tg_adamw_step_args *a, const adamw_factors *f, int64_t i,
                           int64_t k)
{
  const tg_tensor *m = &a->exp_avg[i], *v = &a->exp_avg_sq[i], *g = &a->grads[i];
  const tg_tensor *w = a->master ? &a->master[i] : &a->params[i];
  const double grad = tgi_round(g->dtype, load_at(g, k) * f->grad_scale);
  const double weight = tgi_round(w->dtype, load_at(w, k) * f->decay);
  const double avg = tgi_round(m->dtype, load_at(m, k) + f->blend1 * (grad - load_at(m, k)));
  const double sq =
      tgi_round(v->dtype, tgi_round(v->dtype, a->beta2 * load_at(v, k)) + f->blend2 * grad * grad);
  const double root = tgi_round(v->dtype, tgi_round(v->dtype, sqrt(sq)) / f->correction2);
  const double denominator = tgi_round(v->dtype, root + a->eps);
  const double result = tgi_round(w->dtype, weight - f->step_size * avg / denominator);
  tgi_store(m->data, m->dtype, k, avg);
  tgi_store(v->data, v->dtype, k, sq);
  tgi_store(w->data, w->dtype, k, result);
  tgi_store(a->params[i].data, a->params[i].dtype, k, result);
}

tg_status TGI_KERNEL(adamw_step)(const tg_context *ctx, const tg_adamw_step_args *a)
{
  const tg_status status = check_clip(ctx, a);
  const adamw_factors f = factors_of(a);
  for (int64_t i = 0; i < a->num_tensors && status == TG_OK; i++) {
    for (int64_t k = 0; k < tgi_numel(&a->params[i]); k++) {
      update_element(a, &f, i, k);
    }
  }
  return status;
}
