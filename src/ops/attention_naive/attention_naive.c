#include "ops/kernels.h"
#include "ops/shared/attention/attention_heads.h"

/* Facts that both directions share. */
static void check_shared(tgi_call *call, const tg_tensor *q, const tg_tensor *k, const tg_tensor *v,
                         const tg_tensor *probabilities, float scale)
{
  const int64_t p_shape[4] = {q->shape[0], q->shape[2], q->shape[1], k->shape[1]};
  tgi_want_heads(call, q, k, v);
  tgi_want_extent(call, "k", "first extent", k->shape[0], k->shape[0] == q->shape[0], "that of q");
  tgi_want_shape(call, "probabilities", probabilities, 4, p_shape);
  tgi_want_dtype(call, "probabilities", probabilities, TG_DTYPE_BIT(q->dtype));
  tgi_want_positive(call, "scale", scale);
}

void tgi_attention_naive_fwd_check(tgi_call *call, const tg_attention_naive_fwd_args *a)
{
  const int64_t *q = a->q.shape;
  check_shared(call, &a->q, &a->k, &a->v, &a->probabilities, a->scale);
  TGI_WANT_SHAPE(call, a, out, q[0], q[1], q[2], a->v.shape[3]);
  TGI_WANT_DTYPE(call, a, out, TG_DTYPE_BIT(a->q.dtype));
  call->empty = q[0] == 0 || q[1] == 0;
}

void tgi_attention_naive_bwd_check(tgi_call *call, const tg_attention_naive_bwd_args *a)
{
  const int64_t *q = a->q.shape, *k = a->k.shape, v_dim = a->v.shape[3];
  check_shared(call, &a->q, &a->k, &a->v, &a->probabilities, a->scale);
  TGI_WANT_SHAPE(call, a, dout, q[0], q[1], q[2], v_dim);
  TGI_WANT_DTYPE(call, a, dout, TG_DTYPE_BIT(a->q.dtype));
  TGI_WANT_SHAPE(call, a, dq, q[0], q[1], q[2], q[3]);
  TGI_WANT_DTYPE(call, a, dq, TG_DTYPE_BIT(a->q.dtype));
  TGI_WANT_SHAPE(call, a, dk, k[0], k[1], k[2], k[3]);
  TGI_WANT_DTYPE(call, a, dk, TG_DTYPE_BIT(a->q.dtype));
  TGI_WANT_SHAPE(call, a, dv, k[0], k[1], k[2], v_dim);
  TGI_WANT_DTYPE(call, a, dv, TG_DTYPE_BIT(a->q.dtype));
  call->empty = q[0] == 0 || (q[1] == 0 && k[1] == 0);
}
