/* Attention, reference: each score is computed where it is needed, and nothing is stored. With f64
 * tensors this is the oracle. With 16-bit tensors it rounds like eager code: the product, the
 * scaled and the capped score, p, and in the backward each intermediate matrix. With f32 tensors
 * and allow_tf32 it rounds both factors of every product. */
#include "core/values/half.h"
#include "ops/attention/attention_layout.h"
#include "ops/shared/attention/attention_heads.h"

enum { kChunk = 256 }; /* elements of a row that are summed at a time */

/* One (query, head) against the keys of its sequence; the tensors that a score needs. */
typedef struct scores {
  const tg_tensor *q, *k;
  tgi_attention_layout l;
  float scale, softcap;
  bool tf32;
} scores;

/* A factor of a product. */
static double factor(bool tf32, double v)
{
  return tf32 ? tgi_round_tf32(v) : v;
}

static const void *key_row(const scores *c, const tg_tensor *t, const tgi_attention_sequence *s,
                           int64_t row, int64_t kv_head)
{
  const int64_t i = tgi_attention_key_offset(&c->l, s, t, row) + kv_head * tgi_stride(t, 2);
  return (const char *)t->data + i * (int64_t)tg_dtype_bytes(t->dtype);
}

static double dot(const scores *s, const void *x, const void *y, int64_t n)
{
  const tg_dtype t = s->q->dtype;
  double sum = 0;
  for (int64_t c = 0; c < n; c++) {
    sum += factor(s->tf32, tgi_load(x, t, c)) * factor(s->tf32, tgi_load(y, t, c));
  }
  return sum;
}

/* Query i sees row j of the extent. */
static bool sees(const scores *c, const tgi_attention_sequence *s, int64_t i, int64_t j)
{
  const int64_t p = s->position + i, distance = p > j ? p - j : j - p;
  return j >= s->first && j < s->first + s->count && (!c->l.causal || j <= p) &&
         (c->l.window == 0 || distance < c->l.window);
}

static double score(const scores *c, const tgi_attention_sequence *s, int64_t i, int64_t head,
                    int64_t j)
{
  const tg_dtype t = c->q->dtype;
  const void *q = tgi_head_row(c->q, s->q_index, s->q_first + i, head);
  const void *k = key_row(c, c->k, s, j, head / c->l.group);
  const double scaled = tgi_round(t, tgi_round(t, dot(c, q, k, c->l.head_dim)) * (double)c->scale);
  if (c->softcap == 0) {
    return scaled;
  }
  const double cap = (double)c->softcap;
  return tgi_round(t, tgi_round(t, tanh(tgi_round(t, scaled / cap))) * cap);
}

static double sink_of(const tg_tensor *sinks, int64_t head)
{
  return tgi_present(sinks) ? tgi_load(sinks->data, sinks->dtype, head) : -INFINITY;
}

static int64_t lse_index(const scores *c, const tgi_attention_sequence *s, int64_t i, int64_t head)
{
  return (s->q_index * c->l.q_heads + head) * c->l.nq + s->q_first + i;
}

/* Greatest score of a row, and the sum of e^(score - greatest), sink included. */
static double row_sum(const scores *c, const tgi_attention_sequence *s, int64_t i, int64_t head,
                      double sink, double *greatest)
{
  double m = sink;
  for (int64_t j = 0; j < s->extent; j++) {
    if (sees(c, s, i, j)) {
      const double v = score(c, s, i, head, j);
      m = v > m || isnan(v) ? v : m;
    }
  }
  *greatest = m;
  if (m == -INFINITY) {
    return 0;
  }
  double sum = exp(sink - m);
  for (int64_t j = 0; j < s->extent; j++) {
    sum += sees(c, s, i, j) ? exp(score(c, s, i, head, j) - m) : 0;
  }
  return sum;
}

static void write_out(const scores *c, const tg_attention_fwd_args *a,
                      const tgi_attention_sequence *s, int64_t i, int64_t head)
{
  const tg_dtype t = a->q.dtype;
  const double sink = sink_of(&a->sinks, head);
  double m;
  const double sum = row_sum(c, s, i, head, sink, &m);
  void *out = tgi_head_row(&a->out, s->q_index, s->q_first + i, head);
  for (int64_t c0 = 0; c0 < c->l.v_dim; c0 += kChunk) {
    const int64_t n = c->l.v_dim - c0 < kChunk ? c->l.v_dim - c0 : kChunk;
    double acc[kChunk] = {0};
    for (int64_t j = 0; j < s->extent && sum != 0; j++) {
      if (sees(c, s, i, j)) {
        const double p = factor(c->tf32, tgi_round(t, exp(score(c, s, i, head, j) - m) / sum));
        const void *v = key_row(c, &a->v, s, j, head / c->l.group);
        for (int64_t x = 0; x < n; x++) {
          acc[x] += p * factor(c->tf32, tgi_load(v, t, c0 + x));
        }
      }
    }
    for (int64_t x = 0; x < n; x++) {
      tgi_store(out, t, c0 + x, acc[x]);
    }
  }
  if (tgi_present(&a->lse)) {
    const double lse = sum == 0 ? -INFINITY : m + log(sum);
    tgi_store(a->lse.data, a->lse.dtype, lse_index(c, s, i, head), lse);
  }
}

tg_status TGI_KERNEL(attention_fwd)(const tg_context *ctx, const tg_attention_fwd_args *a)
{
  const scores c = {&a->q,    &a->k,      tgi_attention_fwd_layout(a),
                    a->scale, a->softcap, a->allow_tf32 && a->q.dtype == TG_F32};
  const tg_status status = tgi_attention_check(ctx, "attention_fwd", &c.l);
  for (int64_t b = 0; b < c.l.batch && status == TG_OK; b++) {
    const tgi_attention_sequence s = tgi_attention_sequence_at(&c.l, b);
    for (int64_t i = 0; i < s.nq; i++) {
      for (int64_t head = 0; head < c.l.q_heads; head++) {
        write_out(&c, a, &s, i, head);
      }
    }
  }
  return status;
}

/* ---- backward ---- */

typedef struct gradients {
  scores c;
  const tg_attention_bwd_args *a;
} gradients;

static double lse_of(const gradients *g, const tgi_attention_sequence *s, int64_t i, int64_t head)
{
  return tgi_load(g->a->lse.data, g->a->lse.dtype, lse_index(&g->c, s, i, head));
}

static double probability(const gradients *g, const tgi_attention_sequence *s, int64_t i,
                          int64_t head, int64_t j)
{
  const double lse = lse_of(g, s, i, head);
  if (lse == -INFINITY || !sees(&g->c, s, i, j)) {
    return 0;
  }
  return tgi_round(g->a->q.dtype, exp(score(&g->c, s, i, head, j) - lse));
}

static double delta(const gradients *g, const tgi_attention_sequence *s, int64_t i, int64_t head)
{
  return dot(&g->c, tgi_head_row(&g->a->dout, s->q_index, s->q_first + i, head),
             tgi_head_row(&g->a->out, s->q_index, s->q_first + i, head), g->c.l.v_dim);
}

/* scale * g[i,j] of the contract, g as a factor; called for visible pairs of rows that have a
 * probability. */
static double score_gradient(const gradients *g, const tgi_attention_sequence *s, int64_t i,
                             int64_t head, int64_t j)
{
  const tg_dtype t = g->a->q.dtype;
  const void *dout = tgi_head_row(&g->a->dout, s->q_index, s->q_first + i, head);
  const void *v = key_row(&g->c, &g->a->v, s, j, head / g->c.l.group);
  const double dp = tgi_round(t, dot(&g->c, dout, v, g->c.l.v_dim));
  double ds = tgi_round(t, probability(g, s, i, head, j) * (dp - delta(g, s, i, head)));
  if (g->a->softcap > 0) {
    const double x = score(&g->c, s, i, head, j) / (double)g->a->softcap;
    ds = tgi_round(t, ds * (1 - x * x));
  }
  return tgi_round(t, factor(g->c.tf32, ds) * (double)g->a->scale);
}

static bool pair_counts(const gradients *g, const tgi_attention_sequence *s, int64_t i,
                        int64_t head, int64_t j)
{
  return sees(&g->c, s, i, j) && lse_of(g, s, i, head) != -INFINITY;
}

static void write_dq(const gradients *g, const tgi_attention_sequence *s, int64_t i, int64_t head)
{
  const tg_attention_bwd_args *a = g->a;
  void *dq = tgi_head_row(&a->dq, s->q_index, s->q_first + i, head);
  for (int64_t c0 = 0; c0 < g->c.l.head_dim; c0 += kChunk) {
    const int64_t n = g->c.l.head_dim - c0 < kChunk ? g->c.l.head_dim - c0 : kChunk;
    double acc[kChunk] = {0};
    for (int64_t j = 0; j < s->extent; j++) {
      if (pair_counts(g, s, i, head, j)) {
        const double ds = score_gradient(g, s, i, head, j);
        const void *k = key_row(&g->c, &a->k, s, j, head / g->c.l.group);
        for (int64_t x = 0; x < n; x++) {
          acc[x] += ds * factor(g->c.tf32, tgi_load(k, a->k.dtype, c0 + x));
        }
      }
    }
    for (int64_t x = 0; x < n; x++) {
      tgi_store(dq, a->dq.dtype, c0 + x, acc[x]);
    }
  }
}

/* Row j of dk (of_value false) or dv (true): sums over the queries of the group's heads. */
static void write_key_gradient(const gradients *g, const tgi_attention_sequence *s, int64_t j,
                               int64_t kv_head, bool of_value)
{
  const tg_attention_bwd_args *a = g->a;
  const tg_tensor *result = of_value ? &a->dv : &a->dk, *source = of_value ? &a->dout : &a->q;
  void *out = tgi_head_row(result, s->k_index, s->k_first + j, kv_head);
  for (int64_t c0 = 0; c0 < result->shape[3]; c0 += kChunk) {
    const int64_t n = result->shape[3] - c0 < kChunk ? result->shape[3] - c0 : kChunk;
    double acc[kChunk] = {0};
    for (int64_t r = 0; r < s->nq * g->c.l.group; r++) {
      const int64_t i = r / g->c.l.group, head = kv_head * g->c.l.group + r % g->c.l.group;
      if (pair_counts(g, s, i, head, j)) {
        const double weight = of_value ? factor(g->c.tf32, probability(g, s, i, head, j))
                                       : score_gradient(g, s, i, head, j);
        const void *row = tgi_head_row(source, s->q_index, s->q_first + i, head);
        for (int64_t x = 0; x < n; x++) {
          acc[x] += weight * factor(g->c.tf32, tgi_load(row, source->dtype, c0 + x));
        }
      }
    }
    for (int64_t x = 0; x < n; x++) {
      tgi_store(out, result->dtype, c0 + x, acc[x]);
    }
  }
}

static void add_dsinks(const gradients *g, int64_t head)
{
  const tg_attention_bwd_args *a = g->a;
  const double sink = sink_of(&a->sinks, head);
  double sum = tgi_load(a->dsinks.data, a->dsinks.dtype, head);
  for (int64_t b = 0; b < g->c.l.batch; b++) {
    const tgi_attention_sequence s = tgi_attention_sequence_at(&g->c.l, b);
    for (int64_t i = 0; i < s.nq; i++) {
      const double lse = lse_of(g, &s, i, head);
      if (lse != -INFINITY) {
        sum -= tgi_round(a->q.dtype, exp(sink - lse)) * delta(g, &s, i, head);
      }
    }
  }
  tgi_store(a->dsinks.data, a->dsinks.dtype, head, sum);
}

tg_status TGI_KERNEL(attention_bwd)(const tg_context *ctx, const tg_attention_bwd_args *a)
{
  const gradients g = {{&a->q, &a->k, tgi_attention_bwd_layout(a), a->scale, a->softcap,
                        a->allow_tf32 && a->q.dtype == TG_F32},
                       a};
  const tg_status status = tgi_attention_check(ctx, "attention_bwd", &g.c.l);
  for (int64_t b = 0; b < g.c.l.batch && status == TG_OK; b++) {
    const tgi_attention_sequence s = tgi_attention_sequence_at(&g.c.l, b);
    for (int64_t i = 0; i < s.nq && tgi_present(&a->dq); i++) {
      for (int64_t head = 0; head < g.c.l.q_heads; head++) {
        write_dq(&g, &s, i, head);
      }
    }
    for (int64_t j = 0; j < s.extent; j++) {
      for (int64_t head = 0; head < g.c.l.kv_heads; head++) {
        if (tgi_present(&a->dk)) {
          write_key_gradient(&g, &s, j, head, false);
        }
        if (tgi_present(&a->dv)) {
          write_key_gradient(&g, &s, j, head, true);
        }
      }
    }
  }
  for (int64_t head = 0; head < g.c.l.q_heads && status == TG_OK && tgi_present(&a->dsinks);
       head++) {
    add_dsinks(&g, head);
  }
  return status;
}
