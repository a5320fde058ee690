/* Rotary position embedding, reference. */
#include "core/values/half.h"
#include "ops/kernels.h"
#include "ops/shared/rotation/rotation_ref.h"

typedef void rotate(const tgi_pair_angles *g, const double *x, double *y, tg_dtype step);

static void rotate_head(const tgi_rotation *r, const tg_tensor *x, const tg_tensor *y, int64_t b,
                        int64_t t, int64_t h, rotate *rotate_pair, tg_dtype step)
{
  const void *from = tgi_head(x, b, t, h);
  void *to = tgi_head(y, b, t, h);
  for (int64_t pair = 0; pair < r->half; pair++) {
    const int64_t first = tgi_first_of_pair(r, pair), second = tgi_second_of_pair(r, pair);
    const tgi_pair_angles angles = tgi_angles_of(r, b, t, pair);
    const double in[2] = {tgi_load(from, x->dtype, first), tgi_load(from, x->dtype, second)};
    double out[2];
    rotate_pair(&angles, in, out, step);
    tgi_store(to, y->dtype, first, out[0]);
    tgi_store(to, y->dtype, second, out[1]);
  }
  for (int64_t j = r->dim; j < x->shape[3]; j++) {
    tgi_store(to, y->dtype, j, tgi_load(from, x->dtype, j));
  }
}

static void rotate_all(const tgi_rotation *r, const tg_tensor *x, const tg_tensor *y,
                       rotate *rotate_pair, tg_dtype step)
{
  for (int64_t b = 0; b < x->shape[0]; b++) {
    for (int64_t t = 0; t < x->shape[1]; t++) {
      for (int64_t h = 0; h < x->shape[2]; h++) {
        rotate_head(r, x, y, b, t, h, rotate_pair, step);
      }
    }
  }
}

tg_status TGI_KERNEL(rope_fwd)(const tg_context *ctx, const tg_rope_fwd_args *a)
{
  const tgi_rotation r = TGI_ROTATION(a, a->q.shape[3]);
  const tg_dtype step = tgi_step_dtype(a->q.dtype, a->rounding);
  (void)ctx;
  rotate_all(&r, &a->q, &a->q_out, tgi_rotate_pair, step);
  rotate_all(&r, &a->k, &a->k_out, tgi_rotate_pair, step);
  return TG_OK;
}

tg_status TGI_KERNEL(rope_bwd)(const tg_context *ctx, const tg_rope_bwd_args *a)
{
  const tgi_rotation r = TGI_ROTATION(a, a->dq_out.shape[3]);
  (void)ctx;
  rotate_all(&r, &a->dq_out, &a->dq, tgi_rotate_pair_back, a->dq_out.dtype);
  rotate_all(&r, &a->dk_out, &a->dk, tgi_rotate_pair_back, a->dq_out.dtype);
  return TG_OK;
}
