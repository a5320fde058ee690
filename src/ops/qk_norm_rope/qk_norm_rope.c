#include "ops/kernels.h"
#include "ops/shared/rotation/rotation_checks.h"

static void check_weights(tgi_call *call, const tg_tensor *q, const tg_tensor *q_weight,
                          const tg_tensor *k_weight)
{
  tgi_want_shape(call, "q_weight", q_weight, 1, &q->shape[3]);
  tgi_want_dtype(call, "q_weight", q_weight, tgi_like_or_f32(q));
  tgi_check_like(call, "k_weight", k_weight, q_weight);
}

void tgi_qk_norm_rope_fwd_check(tgi_call *call, const tg_qk_norm_rope_fwd_args *a)
{
  const int64_t batch = a->q.shape[0], seq = a->q.shape[1];
  TGI_CHECK_ROTATION(call, a, q);
  tgi_want_range(call, "rounding", a->rounding, TG_ROUNDING_HF, TG_ROUNDING_ONCE);
  tgi_check_keys(call, "k", &a->q, &a->k);
  check_weights(call, &a->q, &a->q_weight, &a->k_weight);
  tgi_check_like(call, "q_out", &a->q_out, &a->q);
  tgi_check_like(call, "k_out", &a->k_out, &a->k);
  TGI_WANT_SHAPE(call, a, q_rstd, batch, seq, a->q.shape[2]);
  TGI_WANT_SHAPE(call, a, k_rstd, batch, seq, a->k.shape[2]);
  tgi_want_positive(call, "eps", a->eps);
  call->empty = tgi_no_heads(&a->q);
}

void tgi_qk_norm_rope_bwd_check(tgi_call *call, const tg_qk_norm_rope_bwd_args *a)
{
  const int64_t batch = a->q.shape[0], seq = a->q.shape[1], dim = a->q.shape[3];
  TGI_CHECK_ROTATION(call, a, q);
  tgi_check_keys(call, "k", &a->q, &a->k);
  check_weights(call, &a->q, &a->q_weight, &a->k_weight);
  tgi_check_like(call, "dq_out", &a->dq_out, &a->q);
  tgi_check_like(call, "dk_out", &a->dk_out, &a->k);
  TGI_WANT_SHAPE(call, a, q_rstd, batch, seq, a->q.shape[2]);
  TGI_WANT_SHAPE(call, a, k_rstd, batch, seq, a->k.shape[2]);
  tgi_check_like(call, "dq", &a->dq, &a->q);
  tgi_check_like(call, "dk", &a->dk, &a->k);
  TGI_WANT_SHAPE(call, a, dq_weight, dim);
  TGI_WANT_DTYPE(call, a, dq_weight, tgi_like_or_f32(&a->q_weight));
  TGI_WANT_SHAPE(call, a, dk_weight, dim);
  TGI_WANT_DTYPE(call, a, dk_weight, tgi_like_or_f32(&a->k_weight));
  call->empty = tgi_no_heads(&a->q);
}
