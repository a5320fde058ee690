#include "ops/shape.h"

#include <math.h>

/* b sequences of s queries and sk keys (s), h heads, kv heads of keys (h), head_dim d, that of the
 * values vd (d). np: the forward keeps no probabilities. */
#define SYNTAX "bN_hN_[kvN_]sN_[skN_]dN[_vdN][_causal][_np][_nodq][_nodk][_nodv]"

const char tgi_attention_naive_fwd_syntax[] = SYNTAX;
const char tgi_attention_naive_bwd_syntax[] = SYNTAX;

typedef struct naive_views {
  tg_tensor q, k, v, out, probabilities;
  float scale;
} naive_views;

static naive_views read_views(tgi_shape *s)
{
  const int64_t batch = tgi_shape_number(s, "b", 1), heads = tgi_shape_number(s, "h", 1);
  const int64_t kv_heads = tgi_shape_number(s, "kv", heads), nq = tgi_shape_number(s, "s", 1);
  const int64_t keys = tgi_shape_number(s, "sk", nq), dim = tgi_shape_number(s, "d", 64);
  const int64_t v_dim = tgi_shape_number(s, "vd", dim);
  return (naive_views){.q = tg_tensor_4d(NULL, s->dtype, batch, nq, heads, dim),
                       .k = tg_tensor_4d(NULL, s->dtype, batch, keys, kv_heads, dim),
                       .v = tg_tensor_4d(NULL, s->dtype, batch, keys, kv_heads, v_dim),
                       .out = tg_tensor_4d(NULL, s->dtype, batch, nq, heads, v_dim),
                       .probabilities = tg_tensor_4d(NULL, s->dtype, batch, heads, nq, keys),
                       .scale = 1.0f / sqrtf((float)dim)};
}

void tgi_attention_naive_fwd_shape(tgi_shape *s, tg_attention_naive_fwd_args *a)
{
  const naive_views n = read_views(s);
  a->q = n.q;
  a->k = n.k;
  a->v = n.v;
  a->out = n.out;
  if (!tgi_shape_flag(s, "np")) {
    a->probabilities = n.probabilities;
  }
  a->scale = n.scale;
  a->causal = tgi_shape_flag(s, "causal");
  (void)tgi_shape_flag(s, "nodq"), (void)tgi_shape_flag(s, "nodk");
  (void)tgi_shape_flag(s, "nodv");
}

void tgi_attention_naive_bwd_shape(tgi_shape *s, tg_attention_naive_bwd_args *a)
{
  const naive_views n = read_views(s);
  a->dout = n.out;
  a->q = n.q;
  a->k = n.k;
  a->v = n.v;
  a->probabilities = n.probabilities;
  if (!tgi_shape_flag(s, "nodq")) {
    a->dq = n.q;
  }
  if (!tgi_shape_flag(s, "nodk")) {
    a->dk = n.k;
  }
  if (!tgi_shape_flag(s, "nodv")) {
    a->dv = n.v;
  }
  a->scale = n.scale;
  (void)tgi_shape_flag(s, "causal"), (void)tgi_shape_flag(s, "np");
}

/* All pairs are computed, the hidden ones too. */
static double all_pairs(const tg_tensor *q, const tg_tensor *k)
{
  return (double)(q->shape[0] * q->shape[1] * q->shape[2]) * (double)k->shape[1];
}

void tgi_attention_naive_fwd_cost(const tg_attention_naive_fwd_args *a, tgi_cost *cost)
{
  cost->flops = 2.0 * all_pairs(&a->q, &a->k) * (double)(a->q.shape[3] + a->v.shape[3]);
}

void tgi_attention_naive_bwd_cost(const tg_attention_naive_bwd_args *a, tgi_cost *cost)
{
  cost->flops = 4.0 * all_pairs(&a->q, &a->k) * (double)(a->q.shape[3] + a->v.shape[3]);
}
