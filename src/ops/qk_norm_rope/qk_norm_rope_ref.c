/* RMSNorm of heads, then rotary position embedding; reference. */
#include "core/values/half.h"
#include "ops/kernels.h"
#include "ops/shared/rotation/rotation_ref.h"

/* A head: token t of sequence b, head h. */
typedef struct head {
  int64_t b, t, h;
} head;

static int64_t rstd_index(const tg_tensor *x, head at)
{
  return (at.b * x->shape[1] + at.t) * x->shape[2] + at.h;
}

/* ---- forward ---- */

typedef struct fwd_side {
  const tg_tensor *x, *weight, *y, *rstd;
  double eps;
  tg_dtype step;
} fwd_side;

static double find_rstd(const fwd_side *s, const void *x)
{
  const int64_t dim = s->x->shape[3];
  double sum = 0;
  for (int64_t j = 0; j < dim; j++) {
    sum += tgi_load(x, s->x->dtype, j) * tgi_load(x, s->x->dtype, j);
  }
  return tgi_round(s->x->dtype == TG_F64 ? TG_F64 : TG_F32, 1 / sqrt(sum / (double)dim + s->eps));
}

/* Element j after the norm. */
static double normed(const fwd_side *s, const void *x, double rstd, int64_t j)
{
  const double n = tgi_round(s->step, tgi_load(x, s->x->dtype, j) * rstd);
  return tgi_round(s->step, n * tgi_load(s->weight->data, s->weight->dtype, j));
}

static void fwd_head(const tgi_rotation *r, const fwd_side *s, head at)
{
  const void *x = tgi_head(s->x, at.b, at.t, at.h);
  void *y = tgi_head(s->y, at.b, at.t, at.h);
  const double rstd = find_rstd(s, x);
  for (int64_t pair = 0; pair < r->half; pair++) {
    const int64_t first = tgi_first_of_pair(r, pair), second = tgi_second_of_pair(r, pair);
    const tgi_pair_angles angles = tgi_angles_of(r, at.b, at.t, pair);
    const double z[2] = {normed(s, x, rstd, first), normed(s, x, rstd, second)};
    double out[2];
    tgi_rotate_pair(&angles, z, out, s->step);
    tgi_store(y, s->y->dtype, first, out[0]);
    tgi_store(y, s->y->dtype, second, out[1]);
  }
  for (int64_t j = r->dim; j < s->x->shape[3]; j++) {
    tgi_store(y, s->y->dtype, j, normed(s, x, rstd, j));
  }
  if (tgi_present(s->rstd)) {
    tgi_store(s->rstd->data, s->rstd->dtype, rstd_index(s->x, at), rstd);
  }
}

static void fwd_heads(const tgi_rotation *r, const fwd_side *s)
{
  for (int64_t b = 0; b < s->x->shape[0]; b++) {
    for (int64_t t = 0; t < s->x->shape[1]; t++) {
      for (int64_t h = 0; h < s->x->shape[2]; h++) {
        fwd_head(r, s, (head){b, t, h});
      }
    }
  }
}

tg_status TGI_KERNEL(qk_norm_rope_fwd)(const tg_context *ctx, const tg_qk_norm_rope_fwd_args *a)
{
  const tgi_rotation r = TGI_ROTATION(a, a->q.shape[3]);
  const tg_dtype step = tgi_step_dtype(a->q.dtype, a->rounding);
  const double eps = (double)a->eps;
  (void)ctx;
  fwd_heads(&r, &(fwd_side){&a->q, &a->q_weight, &a->q_out, &a->q_rstd, eps, step});
  fwd_heads(&r, &(fwd_side){&a->k, &a->k_weight, &a->k_out, &a->k_rstd, eps, step});
  return TG_OK;
}

/* ---- backward ---- */

typedef struct bwd_side {
  const tg_tensor *dy, *x, *weight, *rstd, *dx, *dweight;
} bwd_side;

/* dz[j] of the contract. */
static double unrotated(const tgi_rotation *r, const bwd_side *s, head at, int64_t j)
{
  const void *dy = tgi_head(s->dy, at.b, at.t, at.h);
  const tg_dtype dtype = s->dy->dtype;
  if (j >= r->dim) {
    return tgi_load(dy, dtype, j);
  }
  const int64_t pair = r->interleaved ? j / 2 : j % r->half;
  const tgi_pair_angles angles = tgi_angles_of(r, at.b, at.t, pair);
  const int64_t first = tgi_first_of_pair(r, pair), second = tgi_second_of_pair(r, pair);
  const double in[2] = {tgi_load(dy, dtype, first), tgi_load(dy, dtype, second)};
  double out[2];
  tgi_rotate_pair_back(&angles, in, out, dtype);
  return tgi_round(dtype, out[j == second]);
}

static double normalised(const bwd_side *s, head at, int64_t j)
{
  const double rstd = tgi_load(s->rstd->data, s->rstd->dtype, rstd_index(s->x, at));
  return tgi_round(s->x->dtype, tgi_load(tgi_head(s->x, at.b, at.t, at.h), s->x->dtype, j) * rstd);
}

static double weighted(const tgi_rotation *r, const bwd_side *s, head at, int64_t j)
{
  const double w = tgi_load(s->weight->data, s->weight->dtype, j);
  return tgi_round(s->x->dtype, unrotated(r, s, at, j) * w);
}

static double find_mean(const tgi_rotation *r, const bwd_side *s, head at)
{
  const int64_t dim = s->x->shape[3];
  double dot = 0;
  for (int64_t j = 0; j < dim; j++) {
    dot += weighted(r, s, at, j) * normalised(s, at, j);
  }
  return dot / (double)dim;
}

static double gradient(const tgi_rotation *r, const bwd_side *s, head at, int64_t j, double mean)
{
  const double rstd = tgi_load(s->rstd->data, s->rstd->dtype, rstd_index(s->x, at));
  const double inner = weighted(r, s, at, j) - normalised(s, at, j) * mean;
  return rstd * tgi_round(s->x->dtype, inner);
}

/* Both elements of a pair are read before one is written, since dx may alias dy. */
static void write_dx(const tgi_rotation *r, const bwd_side *s, head at)
{
  void *dx = tgi_head(s->dx, at.b, at.t, at.h);
  const double mean = find_mean(r, s, at);
  for (int64_t pair = 0; pair < r->half; pair++) {
    const int64_t first = tgi_first_of_pair(r, pair), second = tgi_second_of_pair(r, pair);
    const double out[2] = {gradient(r, s, at, first, mean), gradient(r, s, at, second, mean)};
    tgi_store(dx, s->dx->dtype, first, out[0]);
    tgi_store(dx, s->dx->dtype, second, out[1]);
  }
  for (int64_t j = r->dim; j < s->x->shape[3]; j++) {
    tgi_store(dx, s->dx->dtype, j, gradient(r, s, at, j, mean));
  }
}

static double sum_of_heads(const tgi_rotation *r, const bwd_side *s, int64_t j)
{
  double sum = 0;
  for (int64_t b = 0; b < s->x->shape[0]; b++) {
    for (int64_t t = 0; t < s->x->shape[1]; t++) {
      for (int64_t h = 0; h < s->x->shape[2]; h++) {
        const head at = {b, t, h};
        sum += tgi_round(s->x->dtype, unrotated(r, s, at, j) * normalised(s, at, j));
      }
    }
  }
  return sum;
}

static void bwd_heads(const tgi_rotation *r, const bwd_side *s)
{
  for (int64_t j = 0; j < s->x->shape[3] && tgi_present(s->dweight); j++) {
    const double old = tgi_load(s->dweight->data, s->dweight->dtype, j);
    tgi_store(s->dweight->data, s->dweight->dtype, j, old + sum_of_heads(r, s, j));
  }
  for (int64_t b = 0; b < s->x->shape[0] && tgi_present(s->dx); b++) {
    for (int64_t t = 0; t < s->x->shape[1]; t++) {
      for (int64_t h = 0; h < s->x->shape[2]; h++) {
        write_dx(r, s, (head){b, t, h});
      }
    }
  }
}

tg_status TGI_KERNEL(qk_norm_rope_bwd)(const tg_context *ctx, const tg_qk_norm_rope_bwd_args *a)
{
  const tgi_rotation r = TGI_ROTATION(a, a->q.shape[3]);
  (void)ctx;
  bwd_heads(&r, &(bwd_side){&a->dq_out, &a->q, &a->q_weight, &a->q_rstd, &a->dq, &a->dq_weight});
  bwd_heads(&r, &(bwd_side){&a->dk_out, &a->k, &a->k_weight, &a->k_rstd, &a->dk, &a->dk_weight});
  return TG_OK;
}
