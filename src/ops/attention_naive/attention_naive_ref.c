/* Attention in its materialised form, reference. With f64 tensors this is the oracle; with 16-bit
 * tensors every matrix on the way is rounded, as eager code has them in memory. */
#include "core/values/half.h"
#include "ops/kernels.h"
#include "ops/shared/attention/attention_heads.h"

static double dot(const void *x, const void *y, tg_dtype t, int64_t n)
{
  double sum = 0;
  for (int64_t c = 0; c < n; c++) {
    sum += tgi_load(x, t, c) * tgi_load(y, t, c);
  }
  return sum;
}

enum { kChunk = 128 }; /* elements of a row that are summed at a time */

static int64_t chunk_of(int64_t width, int64_t c0)
{
  return width - c0 < kChunk ? width - c0 : kChunk;
}

static void add_row(double *sum, double weight, const void *row, tg_dtype t, int64_t c0, int64_t n)
{
  for (int64_t c = 0; c < n; c++) {
    sum[c] += weight * tgi_load(row, t, c0 + c);
  }
}

static void store_row(void *row, tg_dtype t, int64_t c0, int64_t n, const double *sum)
{
  for (int64_t c = 0; c < n; c++) {
    tgi_store(row, t, c0 + c, sum[c]);
  }
}

/* ---- forward ---- */

/* One query and head: b, i, h of q[b, i, h]. */
typedef struct query {
  int64_t b, i, head, kv_head;
} query;

static query query_at(const tg_tensor *q, const tg_tensor *k, int64_t b, int64_t i, int64_t head)
{
  return (query){b, i, head, head / (q->shape[2] / k->shape[2])};
}

static int64_t keys_seen(const tg_attention_naive_fwd_args *a, query at)
{
  const int64_t keys = a->k.shape[1], last = keys - a->q.shape[1] + at.i;
  return !a->causal ? keys : last < 0 ? 0 : last + 1;
}

static double score(const tg_attention_naive_fwd_args *a, query at, int64_t j)
{
  const tg_dtype t = a->q.dtype;
  const double s = dot(tgi_head_row(&a->q, at.b, at.i, at.head),
                       tgi_head_row(&a->k, at.b, j, at.kv_head), t, a->q.shape[3]);
  return tgi_round(t, tgi_round(t, s) * (double)a->scale);
}

/* Greatest score, and the sum of e^(score - greatest); 0: no key has a probability. */
static double row_sum(const tg_attention_naive_fwd_args *a, query at, double *greatest)
{
  const int64_t seen = keys_seen(a, at);
  double m = -INFINITY, sum = 0;
  for (int64_t j = 0; j < seen; j++) {
    const double s = score(a, at, j);
    m = s > m || isnan(s) ? s : m;
  }
  for (int64_t j = 0; j < seen && m != -INFINITY; j++) {
    sum += exp(score(a, at, j) - m);
  }
  *greatest = m;
  return sum;
}

/* p[i,j]; sum and greatest are those of the row. */
static double fwd_probability(const tg_attention_naive_fwd_args *a, query at, int64_t j, double sum,
                              double greatest)
{
  if (j >= keys_seen(a, at) || sum == 0) {
    return 0;
  }
  return tgi_round(a->q.dtype, exp(score(a, at, j) - greatest) / sum);
}

static void write_query(const tg_attention_naive_fwd_args *a, query at)
{
  const int64_t keys = a->k.shape[1], width = a->v.shape[3];
  double greatest;
  const double row = row_sum(a, at, &greatest);
  for (int64_t c0 = 0; c0 < width; c0 += kChunk) {
    const int64_t n = chunk_of(width, c0);
    double sum[kChunk] = {0};
    for (int64_t j = 0; j < keys; j++) {
      add_row(sum, fwd_probability(a, at, j, row, greatest),
              tgi_head_row(&a->v, at.b, j, at.kv_head), a->v.dtype, c0, n);
    }
    store_row(tgi_head_row(&a->out, at.b, at.i, at.head), a->out.dtype, c0, n, sum);
  }
  for (int64_t j = 0; j < keys && tgi_present(&a->probabilities); j++) {
    tgi_store(tgi_head_row(&a->probabilities, at.b, at.head, at.i), a->probabilities.dtype, j,
              fwd_probability(a, at, j, row, greatest));
  }
}

tg_status TGI_KERNEL(attention_naive_fwd)(const tg_context *ctx,
                                          const tg_attention_naive_fwd_args *a)
{
  (void)ctx;
  for (int64_t b = 0; b < a->q.shape[0]; b++) {
    for (int64_t i = 0; i < a->q.shape[1]; i++) {
      for (int64_t head = 0; head < a->q.shape[2]; head++) {
        write_query(a, query_at(&a->q, &a->k, b, i, head));
      }
    }
  }
  return TG_OK;
}

/* ---- backward ---- */

static double probability(const tg_attention_naive_bwd_args *a, query at, int64_t j)
{
  return tgi_load(tgi_head_row(&a->probabilities, at.b, at.head, at.i), a->q.dtype, j);
}

static double probability_gradient(const tg_attention_naive_bwd_args *a, query at, int64_t j)
{
  const tg_dtype t = a->q.dtype;
  return tgi_round(t, dot(tgi_head_row(&a->dout, at.b, at.i, at.head),
                          tgi_head_row(&a->v, at.b, j, at.kv_head), t, a->v.shape[3]));
}

/* sum_j p[i,j] * dp[i,j] */
static double row_products(const tg_attention_naive_bwd_args *a, query at)
{
  double sum = 0;
  for (int64_t j = 0; j < a->k.shape[1]; j++) {
    sum += probability(a, at, j) * probability_gradient(a, at, j);
  }
  return sum;
}

static double score_gradient(const tg_attention_naive_bwd_args *a, query at, int64_t j,
                             double products)
{
  const tg_dtype t = a->q.dtype;
  const double inner = probability_gradient(a, at, j) - products;
  return tgi_round(t, tgi_round(t, probability(a, at, j) * inner) * (double)a->scale);
}

static void write_dq(const tg_attention_naive_bwd_args *a, query at)
{
  const double products = row_products(a, at);
  for (int64_t c0 = 0; c0 < a->q.shape[3]; c0 += kChunk) {
    const int64_t n = chunk_of(a->q.shape[3], c0);
    double sum[kChunk] = {0};
    for (int64_t j = 0; j < a->k.shape[1]; j++) {
      add_row(sum, score_gradient(a, at, j, products), tgi_head_row(&a->k, at.b, j, at.kv_head),
              a->k.dtype, c0, n);
    }
    store_row(tgi_head_row(&a->dq, at.b, at.i, at.head), a->dq.dtype, c0, n, sum);
  }
}

/* Row j of dk (from q and ds) or of dv (from dout and p): over the queries of the group's heads. */
static void write_key(const tg_attention_naive_bwd_args *a, int64_t b, int64_t j, int64_t kv_head,
                      const tg_tensor *result, const tg_tensor *source)
{
  const int64_t group = a->q.shape[2] / a->k.shape[2];
  for (int64_t c0 = 0; c0 < result->shape[3]; c0 += kChunk) {
    const int64_t n = chunk_of(result->shape[3], c0);
    double sum[kChunk] = {0};
    for (int64_t r = 0; r < a->q.shape[1] * group; r++) {
      const query at = query_at(&a->q, &a->k, b, r / group, kv_head * group + r % group);
      const double weight =
          result == &a->dv ? probability(a, at, j) : score_gradient(a, at, j, row_products(a, at));
      add_row(sum, weight, tgi_head_row(source, b, at.i, at.head), source->dtype, c0, n);
    }
    store_row(tgi_head_row(result, b, j, kv_head), result->dtype, c0, n, sum);
  }
}

tg_status TGI_KERNEL(attention_naive_bwd)(const tg_context *ctx,
                                          const tg_attention_naive_bwd_args *a)
{
  (void)ctx;
  for (int64_t b = 0; b < a->q.shape[0]; b++) {
    for (int64_t r = 0; r < a->q.shape[1] * a->q.shape[2] && tgi_present(&a->dq); r++) {
      write_dq(a, query_at(&a->q, &a->k, b, r / a->q.shape[2], r % a->q.shape[2]));
    }
    for (int64_t r = 0; r < a->k.shape[1] * a->k.shape[2]; r++) {
      const int64_t j = r / a->k.shape[2], kv_head = r % a->k.shape[2];
      if (tgi_present(&a->dk)) {
        write_key(a, b, j, kv_head, &a->dk, &a->q);
      }
      if (tgi_present(&a->dv)) {
        write_key(a, b, j, kv_head, &a->dv, &a->dout);
      }
    }
  }
  return TG_OK;
}
