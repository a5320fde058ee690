/* Attention in its materialised form, on the CPU: one head after the other, each as products of
 * matrices (cpu/gemm/gemm.h) with a pass over the rows of scores between them.
 *
 *   forward    S = Q K^T;  P = softmax(S) row by row, in place;  O = P V
 *   backward   dV += P^T dO;  dP = dO V^T;  dS from P and dP row by row, in place;
 *              dQ = dS K;  dK += dS^T Q
 *
 * Work       The products cut themselves; the passes take chunks of rows. dk and dv are summed in
 *            f32 over the heads that share a kv head, and rounded then.
 * Bound      Arithmetic, and once a head no longer fits the caches the memory: the scores go
 *            through it four times. tg_attention_fwd computes the same without them.
 */
#include "cpu/exp.h"
#include "cpu/gemm/gemm.h"
#include "ops/kernels.h"
#include "ops/shared/attention/attention_heads.h"

#include <stdio.h>

enum { kGrainFloats = 16 << 10 };

static int64_t whole_vectors(int64_t n)
{
  return (n + TGI_LANES - 1) / TGI_LANES * TGI_LANES;
}

/* Bytes of a matrix in the workspace; what follows it is aligned. */
static size_t matrix_bytes(int64_t rows, int64_t pitch)
{
  return ((size_t)(rows * pitch) * sizeof(float) + 63) / 64 * 64;
}

static size_t larger(size_t a, size_t b)
{
  return a > b ? a : b;
}

/* ---- one head's matrices ---- */

/* One head, and the floats that its scores take: [nq][pitch], pitch in whole vectors. */
typedef struct head {
  int64_t b, q_head, kv_head, nq, keys, pitch;
  float *scores;
} head;

static head head_at(const tg_tensor *q, const tg_tensor *k, int64_t b, int64_t q_head,
                    void *workspace)
{
  return (head){.b = b,
                .q_head = q_head,
                .kv_head = q_head / (q->shape[2] / k->shape[2]),
                .nq = q->shape[1],
                .keys = k->shape[1],
                .pitch = whole_vectors(k->shape[1]),
                .scores = workspace};
}

/* Rows of a head of t as an operand: its outer index runs over the rows (along_k) or over c. */
static tgi_gemm_operand rows_of(const tg_tensor *t, int64_t b, int64_t t_head, bool along_k)
{
  return tgi_gemm_matrix(tgi_head_row(t, b, 0, t_head), t->dtype, tgi_stride(t, 1), along_k);
}

static tgi_gemm_operand scores_of(const head *h, bool along_k)
{
  return tgi_gemm_matrix(h->scores, TG_F32, h->pitch, along_k);
}

/* C = A B into a head of t, which may be absent where a product is only sized. */
static tgi_gemm_result to_rows(const tg_tensor *t, int64_t b, int64_t t_head)
{
  return (tgi_gemm_result){.y = tgi_present(t) ? tgi_head_row(t, b, 0, t_head) : NULL,
                           .dtype = t->dtype,
                           .stride = tgi_stride(t, 1)};
}

/* scores = X Y^T, for q and k or for dout and v. */
static tgi_gemm_problem score_product(const head *h, const tg_tensor *x, const tg_tensor *y)
{
  return (tgi_gemm_problem){.m = h->nq,
                            .n = h->keys,
                            .k = x->shape[3],
                            .a = rows_of(x, h->b, h->q_head, true),
                            .b = rows_of(y, h->b, h->kv_head, true),
                            .c = {.y = h->scores, .dtype = TG_F32, .stride = h->pitch}};
}

/* to = scores Y, for out and v or for dq and k. */
static tgi_gemm_problem row_product(const head *h, const tg_tensor *y, const tg_tensor *to)
{
  return (tgi_gemm_problem){.m = h->nq,
                            .n = y->shape[3],
                            .k = h->keys,
                            .a = scores_of(h, true),
                            .b = rows_of(y, h->b, h->kv_head, false),
                            .c = to_rows(to, h->b, h->q_head)};
}

/* ---- forward ---- */

typedef struct fwd_job {
  const tg_attention_naive_fwd_args *a;
  head h;
} fwd_job;

/* s[0 .. seen) to e^(scale s) / sum; the rest of the row, up to whole vectors, to 0. */
static void softmax_row(float *s, int64_t seen, int64_t pitch, float scale)
{
  const int64_t end = whole_vectors(seen);
  vf greatest = vf_set1(-INFINITY), sum = vf_zero();
  for (int64_t j = seen; j < end; j++) {
    s[j] = -INFINITY;
  }
  for (int64_t j = 0; j < end; j += TGI_LANES) {
    const vf scaled = vf_load_f32(s + j) * vf_set1(scale);
    vf_store_f32(s + j, scaled);
    greatest = vf_max(scaled, greatest); /* a NaN shows in the sum */
  }
  const float m = vf_hmax(greatest), base = m == -INFINITY ? 0 : m;
  for (int64_t j = 0; j < end; j += TGI_LANES) {
    const vf e = vf_exp(vf_load_f32(s + j) - vf_set1(base));
    vf_store_f32(s + j, e);
    sum = sum + e;
  }
  const float total = vf_sum(sum);
  for (int64_t j = 0; j < end && total != 0; j += TGI_LANES) {
    vf_store_f32(s + j, vf_load_f32(s + j) / vf_set1(total));
  }
  for (int64_t j = seen; j < pitch; j++) {
    s[j] = 0;
  }
}

/* n floats rounded to the dtype. */
static void narrow(void *to, int dtype, const float *from, int64_t n)
{
  for (int64_t j = 0; j < n; j += TGI_LANES) {
    const int64_t left = tgi_min_i64(TGI_LANES, n - j);
    TGI_SWITCH_FLOAT(dtype, T, vf_store_part(to, T, j, left, vf_load_part_f32(from + j, left)));
  }
}

static void softmax_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const fwd_job *job = arg;
  const tg_attention_naive_fwd_args *a = job->a;
  const head *h = &job->h;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    float *row = h->scores + i * h->pitch;
    const int64_t last = h->keys - h->nq + i;
    softmax_row(row, !a->causal ? h->keys : last < 0 ? 0 : last + 1, h->pitch, a->scale);
    if (tgi_present(&a->probabilities)) {
      narrow(tgi_head_row(&a->probabilities, h->b, h->q_head, i), a->probabilities.dtype, row,
             h->keys);
    }
  }
}

/* Rows per chunk of a pass over the scores. */
static int64_t row_grain(const head *h)
{
  return 1 + kGrainFloats / (h->pitch + 1);
}

size_t TGI_WORKSPACE(attention_naive_fwd)(const tg_context *ctx,
                                          const tg_attention_naive_fwd_args *a)
{
  const head h = head_at(&a->q, &a->k, 0, 0, NULL);
  const tgi_gemm_problem scores = score_product(&h, &a->q, &a->k);
  const tgi_gemm_problem out = row_product(&h, &a->v, &a->out);
  return matrix_bytes(h.nq, h.pitch) +
         larger(tgi_gemm_workspace(ctx, &scores), tgi_gemm_workspace(ctx, &out));
}

tg_status TGI_KERNEL(attention_naive_fwd)(const tg_context *ctx,
                                          const tg_attention_naive_fwd_args *a)
{
  for (int64_t i = 0; i < a->q.shape[0] * a->q.shape[2]; i++) {
    fwd_job job = {a, head_at(&a->q, &a->k, i / a->q.shape[2], i % a->q.shape[2], a->workspace)};
    const head *h = &job.h;
    const tgi_gemm_problem scores = score_product(h, &a->q, &a->k);
    const tgi_gemm_problem out = row_product(h, &a->v, &a->out);
    void *packed = (char *)a->workspace + matrix_bytes(h->nq, h->pitch);
    tgi_gemm(ctx, &scores, packed);
    tgi_for(ctx, h->nq, row_grain(h), softmax_rows, &job);
    tgi_gemm(ctx, &out, packed);
  }
  return TG_OK;
}

void TGI_PLAN(attention_naive_fwd)(const tg_context *ctx, const tg_attention_naive_fwd_args *a,
                                   char *text, size_t bytes)
{
  (void)ctx;
  snprintf(text, bytes, "%lld heads, one after the other, scores of %lld x %lld",
           (long long)(a->q.shape[0] * a->q.shape[2]), (long long)a->q.shape[1],
           (long long)a->k.shape[1]);
}

/* ---- backward ---- */

/* A head, and the f32 sums of its kv head: [keys][head_dim], [keys][v_dim]. */
typedef struct bwd_job {
  const tg_attention_naive_bwd_args *a;
  head h;
  float *dk, *dv;
  void *packed;
} bwd_job;

/* Without a workspace (while its size is asked) there is nothing to point to. */
static bwd_job job_at(const tg_attention_naive_bwd_args *a, int64_t b, int64_t q_head)
{
  bwd_job job = {.a = a, .h = head_at(&a->q, &a->k, b, q_head, a->workspace)};
  char *at_next = a->workspace;
  if (at_next) {
    at_next += matrix_bytes(job.h.nq, job.h.pitch);
    job.dk = (float *)(void *)at_next;
    at_next += matrix_bytes(job.h.keys, a->k.shape[3]);
    job.dv = (float *)(void *)at_next;
    job.packed = at_next + matrix_bytes(job.h.keys, a->v.shape[3]);
  }
  return job;
}

/* sums += M^T Y: for dk with ds and q, for dv with p and dout. */
static tgi_gemm_problem key_product(const head *h, tgi_gemm_operand m, const tg_tensor *y,
                                    float *sums)
{
  const int64_t width = y->shape[3];
  return (tgi_gemm_problem){.m = h->keys,
                            .n = width,
                            .k = h->nq,
                            .a = m,
                            .b = rows_of(y, h->b, h->q_head, false),
                            .c = {.y = sums, .dtype = TG_F32, .stride = width, .accumulate = true}};
}

typedef struct bwd_products {
  tgi_gemm_problem dv, dp, dq, dk;
} bwd_products;

static bwd_products products_of(const bwd_job *job)
{
  const tg_attention_naive_bwd_args *a = job->a;
  const head *h = &job->h;
  const tg_tensor *p = &a->probabilities;
  const tgi_gemm_operand p_rows =
      tgi_gemm_matrix(tgi_head_row(p, h->b, h->q_head, 0), p->dtype, tgi_stride(p, 2), false);
  return (bwd_products){.dv = key_product(h, p_rows, &a->dout, job->dv),
                        .dp = score_product(h, &a->dout, &a->v),
                        .dq = row_product(h, &a->k, &a->dq),
                        .dk = key_product(h, scores_of(h, false), &a->q, job->dk)};
}

/* ds = scale * p * (dp - sum_j p dp), over dp. */
TGI_INLINE void gradient_row(float *dp, const void *p, int t, int64_t keys, float scale)
{
  vf sum = vf_zero();
  for (int64_t j = 0; j < keys; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, keys - j);
    sum = vf_fma(vf_load_part(p, t, j, n), vf_load_part_f32(dp + j, n), sum);
  }
  const vf total = vf_set1(vf_sum(sum));
  for (int64_t j = 0; j < keys; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, keys - j);
    const vf inner = vf_load_part_f32(dp + j, n) - total;
    vf_store_part_f32(dp + j, n, vf_load_part(p, t, j, n) * inner * vf_set1(scale));
  }
}

static void gradient_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const bwd_job *job = arg;
  const tg_tensor *p = &job->a->probabilities;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    const void *row = tgi_head_row(p, job->h.b, job->h.q_head, i);
    TGI_SWITCH_FLOAT(
        p->dtype, T,
        gradient_row(job->h.scores + i * job->h.pitch, row, T, job->h.keys, job->a->scale));
  }
}

static void add_head(const tg_context *ctx, bwd_job *job)
{
  const tg_attention_naive_bwd_args *a = job->a;
  const bwd_products product = products_of(job);
  if (tgi_present(&a->dv)) {
    tgi_gemm(ctx, &product.dv, job->packed);
  }
  tgi_gemm(ctx, &product.dp, job->packed);
  tgi_for(ctx, job->h.nq, row_grain(&job->h), gradient_rows, job);
  if (tgi_present(&a->dq)) {
    tgi_gemm(ctx, &product.dq, job->packed);
  }
  if (tgi_present(&a->dk)) {
    tgi_gemm(ctx, &product.dk, job->packed);
  }
}

/* The sums, rounded, as rows of one kv head of dk or dv. */
static void write_keys(const bwd_job *job, const tg_tensor *t, const float *sums)
{
  const int64_t width = t->shape[3];
  for (int64_t j = 0; j < job->h.keys && tgi_present(t); j++) {
    narrow(tgi_head_row(t, job->h.b, j, job->h.kv_head), t->dtype, sums + j * width, width);
  }
}

size_t TGI_WORKSPACE(attention_naive_bwd)(const tg_context *ctx,
                                          const tg_attention_naive_bwd_args *a)
{
  const bwd_job job = job_at(a, 0, 0);
  const bwd_products product = products_of(&job);
  const size_t rows = larger(tgi_gemm_workspace(ctx, &product.dp),
                             tgi_present(&a->dq) ? tgi_gemm_workspace(ctx, &product.dq) : 0);
  const size_t keys =
      larger(tgi_gemm_workspace(ctx, &product.dv), tgi_gemm_workspace(ctx, &product.dk));
  return matrix_bytes(job.h.nq, job.h.pitch) + matrix_bytes(job.h.keys, a->k.shape[3]) +
         matrix_bytes(job.h.keys, a->v.shape[3]) + larger(rows, keys);
}

tg_status TGI_KERNEL(attention_naive_bwd)(const tg_context *ctx,
                                          const tg_attention_naive_bwd_args *a)
{
  const int64_t kv_heads = a->k.shape[2], group = a->q.shape[2] / kv_heads;
  for (int64_t i = 0; i < a->q.shape[0] * kv_heads; i++) {
    bwd_job job = job_at(a, i / kv_heads, i % kv_heads * group);
    memset(job.dk, 0, (size_t)(job.h.keys * a->k.shape[3]) * sizeof *job.dk);
    memset(job.dv, 0, (size_t)(job.h.keys * a->v.shape[3]) * sizeof *job.dv);
    for (int64_t member = 0; member < group; member++) {
      add_head(ctx, &job);
      job.h.q_head++;
    }
    write_keys(&job, &a->dk, job.dk);
    write_keys(&job, &a->dv, job.dv);
  }
  return TG_OK;
}

void TGI_PLAN(attention_naive_bwd)(const tg_context *ctx, const tg_attention_naive_bwd_args *a,
                                   char *text, size_t bytes)
{
  (void)ctx;
  snprintf(text, bytes, "%lld heads, one after the other, gradients of scores of %lld x %lld",
           (long long)(a->q.shape[0] * a->q.shape[2]), (long long)a->q.shape[1],
           (long long)a->k.shape[1]);
}
