#include "ops/kernels.h"
#include "ops/shared/attention/attention_heads.h"

/* The arguments of both directions: one list of facts serves both. */
typedef struct shared {
  const tg_tensor *q, *k, *v, *sinks, *cu_q, *cu_k, *key_start, *key_count, *query_start;
  const tg_tensor *block_table; /* NULL: the direction has none */
  float scale, softcap;
  int32_t window;
} shared;

#define SHARED(a, table)                                                                           \
  (shared)                                                                                         \
  {                                                                                                \
    &(a)->q, &(a)->k, &(a)->v, &(a)->sinks, &(a)->cu_seqlens_q, &(a)->cu_seqlens_k,                \
        &(a)->key_start, &(a)->key_count, &(a)->query_start, table, (a)->scale, (a)->softcap,      \
        (a)->window                                                                                \
  }

/* cu_seqlens: [batch + 1], and the tensor that it cuts is [1, total, ..]. */
static void check_packed(tgi_call *call, const char *argument, const tg_tensor *cu,
                         const char *packed_argument, const tg_tensor *packed)
{
  if (tgi_present(cu)) {
    tgi_want_extent(call, argument, "length", cu->shape[0], cu->shape[0] >= 1, "batch + 1 >= 1");
    tgi_want_extent(call, packed_argument, "first extent", packed->shape[0], packed->shape[0] == 1,
                    "1 beside cu_seqlens");
  }
}

static int64_t batch_of(const shared *s)
{
  return tgi_present(s->cu_q) ? s->cu_q->shape[0] - 1 : s->q->shape[0];
}

/* The keys of every sequence are packed, in blocks, or one row of k's first axis. */
static void check_key_layout(tgi_call *call, const shared *s)
{
  const int64_t batch = batch_of(s);
  if (s->block_table && tgi_present(s->block_table)) {
    if (tgi_present(s->cu_k)) {
      tgi_fail(call, TG_BAD_ARGUMENT, "block_table", "expected none beside cu_seqlens_k, got one");
    }
    tgi_want_extent(call, "block_table", "first extent", s->block_table->shape[0],
                    s->block_table->shape[0] == batch, "that of the batch");
    tgi_want_extent(call, "k", "block size", s->k->shape[1], s->k->shape[1] >= 1, ">= 1");
  } else if (tgi_present(s->cu_k)) {
    const int64_t length = batch + 1;
    tgi_want_shape(call, "cu_seqlens_k", s->cu_k, 1, &length);
  } else {
    tgi_want_extent(call, "k", "first extent", s->k->shape[0], s->k->shape[0] == batch,
                    "that of the batch");
  }
}

static void check_shared(tgi_call *call, const shared *s)
{
  const int64_t batch = batch_of(s);
  check_packed(call, "cu_seqlens_q", s->cu_q, "q", s->q);
  check_packed(call, "cu_seqlens_k", s->cu_k, "k", s->k);
  tgi_want_heads(call, s->q, s->k, s->v);
  check_key_layout(call, s);
  tgi_want_shape(call, "sinks", s->sinks, 1, &s->q->shape[2]);
  tgi_want_dtype(call, "sinks", s->sinks, tgi_like_or_f32(s->q));
  tgi_want_shape(call, "key_start", s->key_start, 1, &batch);
  tgi_want_shape(call, "key_count", s->key_count, 1, &batch);
  tgi_want_shape(call, "query_start", s->query_start, 1, &batch);
  tgi_want_positive(call, "scale", s->scale);
  tgi_want_finite(call, "softcap", s->softcap);
  if (s->softcap < 0) {
    tgi_fail(call, TG_BAD_ARGUMENT, "softcap", "expected a number >= 0, got %g", s->softcap);
  }
  tgi_want_range(call, "window", s->window, 0, INT32_MAX);
}

void tgi_attention_fwd_check(tgi_call *call, const tg_attention_fwd_args *a)
{
  const shared s = SHARED(a, &a->block_table);
  const int64_t *q = a->q.shape;
  check_shared(call, &s);
  TGI_WANT_SHAPE(call, a, out, q[0], q[1], q[2], a->v.shape[3]);
  TGI_WANT_DTYPE(call, a, out, TG_DTYPE_BIT(a->q.dtype));
  TGI_WANT_SHAPE(call, a, lse, q[0], q[2], q[1]);
  call->empty = q[0] == 0 || q[1] == 0;
}

void tgi_attention_bwd_check(tgi_call *call, const tg_attention_bwd_args *a)
{
  const shared s = SHARED(a, NULL);
  const int64_t *q = a->q.shape, *k = a->k.shape, v_dim = a->v.shape[3];
  check_shared(call, &s);
  TGI_WANT_SHAPE(call, a, out, q[0], q[1], q[2], v_dim);
  TGI_WANT_DTYPE(call, a, out, TG_DTYPE_BIT(a->q.dtype));
  TGI_WANT_SHAPE(call, a, dout, q[0], q[1], q[2], v_dim);
  TGI_WANT_DTYPE(call, a, dout, TG_DTYPE_BIT(a->q.dtype));
  TGI_WANT_SHAPE(call, a, lse, q[0], q[2], q[1]);
  TGI_WANT_SHAPE(call, a, dq, q[0], q[1], q[2], q[3]);
  TGI_WANT_DTYPE(call, a, dq, TG_DTYPE_BIT(a->q.dtype));
  TGI_WANT_SHAPE(call, a, dk, k[0], k[1], k[2], k[3]);
  TGI_WANT_DTYPE(call, a, dk, TG_DTYPE_BIT(a->q.dtype));
  TGI_WANT_SHAPE(call, a, dv, k[0], k[1], k[2], v_dim);
  TGI_WANT_DTYPE(call, a, dv, TG_DTYPE_BIT(a->q.dtype));
  TGI_WANT_SHAPE(call, a, dsinks, q[2]);
  TGI_WANT_DTYPE(call, a, dsinks, tgi_like_or_f32(&a->sinks));
  if (tgi_present(&a->dsinks) && !tgi_present(&a->sinks)) {
    tgi_fail(call, TG_BAD_ARGUMENT, "dsinks", "expected none without sinks, got one");
  }
  call->empty = (q[0] == 0 || q[1] == 0) && (k[0] == 0 || k[1] == 0);
}
