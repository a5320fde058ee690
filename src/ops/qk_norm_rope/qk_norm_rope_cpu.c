/* RMSNorm of heads, then rotary position embedding, on the CPU.
 *
 * Method     Forward: rope/rotate_heads.h with a norm before the rotation. A first pass computes
 *            the head's sum of squares; the second reads the head from the first-level cache.
 *            Backward: two passes per head, the first for the mean of the contract, the second for
 *            dx and the partial sums of the weights' gradients. Both rotate the gradient back on
 *            the fly.
 * Work       Forward: chunks of tokens. Backward: the row blocks of cpu/column_sums.h, of tokens.
 * Bound      Memory bandwidth: forward reads x and writes y, backward reads dy and x and writes
 *            dx.
 */
#include "cpu/column_sums.h"
#include "ops/kernels.h"
#include "ops/shared/rotation/rotate_heads.h"

#include <stdio.h>

/* ---- forward ---- */

static tgi_rotate_job plan_fwd(const tg_context *ctx, const tg_qk_norm_rope_fwd_args *a)
{
  const tgi_rotation r = TGI_ROTATION(a, a->q.shape[3]);
  tgi_rotate_job job = {
      .r = r,
      .side = {tgi_heads_of(ctx, &r, &a->q, &a->q_out), tgi_heads_of(ctx, &r, &a->k, &a->k_out)},
      .tokens = a->q.shape[0] * a->q.shape[1],
      .seq = a->q.shape[1],
      .head_dim = a->q.shape[3],
      .x = a->q.dtype,
      .weight = a->q_weight.dtype,
      .steps = a->rounding == TG_ROUNDING_HF && a->q.dtype != TG_F32,
      .eps = a->eps,
  };
  job.side[0].weight = a->q_weight.data;
  job.side[0].rstd = a->q_rstd.data;
  job.side[1].weight = a->k_weight.data;
  job.side[1].rstd = a->k_rstd.data;
  return job;
}

TGI_INLINE void fwd_tokens(const tgi_rotate_job *job, int64_t begin, int64_t end, int x)
{
  const int weight = x == TG_F32 ? TG_F32 : job->weight;
  const tgi_rotate_kind once = {.x = x, .weight = weight, .step = TG_F32, .normed = true};
  const tgi_rotate_kind steps = {.x = x, .weight = weight, .step = x, .normed = true};
  if (x != TG_F32 && job->steps) {
    tgi_rotate_tokens(job, begin, end, steps);
  } else {
    tgi_rotate_tokens(job, begin, end, once);
  }
}

static void fwd_chunk(void *arg, int64_t begin, int64_t end, int thread)
{
  const tgi_rotate_job *job = arg;
  (void)thread;
  TGI_SWITCH_FLOAT(job->x, X, fwd_tokens(job, begin, end, X));
}

tg_status TGI_KERNEL(qk_norm_rope_fwd)(const tg_context *ctx, const tg_qk_norm_rope_fwd_args *a)
{
  tgi_rotate_job job = plan_fwd(ctx, a);
  tgi_for(ctx, job.tokens, tgi_rotate_grain(&job), fwd_chunk, &job);
  return TG_OK;
}

void TGI_PLAN(qk_norm_rope_fwd)(const tg_context *ctx, const tg_qk_norm_rope_fwd_args *a,
                                char *text, size_t bytes)
{
  const tgi_rotate_job job = plan_fwd(ctx, a);
  snprintf(text, bytes, "chunks of %lld tokens, %s stores", (long long)tgi_rotate_grain(&job),
           job.side[0].stream ? "streaming" : "cached");
}

/* ---- backward ---- */

/* q or k with its gradients. */
typedef struct side {
  tgi_head_grid dy, x, dx;   /* dx.data NULL: not wanted */
  int64_t count;             /* heads per token */
  int64_t dy_ahead, x_ahead; /* bytes from a head to the one to prefetch */
  const void *weight;
  const float *rstd; /* [tokens, count] */
  float *partial;    /* [2, head_dim] of the first block: its sums, and those of one token. NULL:
                        dweight is not wanted */
  bool stream;
} side;

typedef struct bwd_job {
  tgi_rotation r;
  side side[2];
  tgi_row_blocks blocks; /* of tokens */
  int64_t seq, head_dim;
  int64_t partial_stride; /* floats from block to block */
  int x, weight;
} bwd_job;

static side plan_side(const tg_context *ctx, const tgi_rotation *r, const tg_tensor *dy,
                      const tg_tensor *x, const tg_tensor *weight, const tg_tensor *rstd,
                      const tg_tensor *dx)
{
  side s = {.dy = tgi_head_grid_of(dy),
            .x = tgi_head_grid_of(x),
            .dx = tgi_head_grid_of(dx),
            .count = x->shape[2],
            .dy_ahead = tgi_heads_ahead(dy),
            .x_ahead = tgi_heads_ahead(x),
            .weight = weight->data,
            .rstd = rstd->data};
  s.stream = tgi_present(dx) && tgi_heads_of(ctx, r, dy, dx).stream;
  return s;
}

static bwd_job plan_bwd(const tg_context *ctx, const tg_qk_norm_rope_bwd_args *a)
{
  const tgi_rotation r = TGI_ROTATION(a, a->q.shape[3]);
  const int64_t dim = a->q.shape[3];
  float *partial = a->workspace;
  bwd_job job = {
      .r = r,
      .side = {plan_side(ctx, &r, &a->dq_out, &a->q, &a->q_weight, &a->q_rstd, &a->dq),
               plan_side(ctx, &r, &a->dk_out, &a->k, &a->k_weight, &a->k_rstd, &a->dk)},
      .blocks = tgi_cut_rows(a->q.shape[0] * a->q.shape[1]),
      .seq = a->q.shape[1],
      .head_dim = dim,
      .x = a->q.dtype,
      .weight = a->q_weight.dtype,
  };
  if (tgi_present(&a->dq_weight)) {
    job.side[0].partial = partial;
    job.partial_stride += 2 * dim;
  }
  if (tgi_present(&a->dk_weight)) {
    job.side[1].partial = partial ? partial + job.partial_stride : NULL;
    job.partial_stride += 2 * dim;
  }
  return job;
}

typedef struct bwd_kind {
  int x, weight;
  bool write; /* false: the first pass, which sums the dot product */
} bwd_kind;

typedef struct bwd_head {
  vf rstd, mean, dot;
  const void *dy, *x, *weight, *dy_ahead, *x_ahead; /* ahead: to prefetch */
  void *dx;
  float *partial;
  bool stream;
} bwd_head;

/* Adds elements i .. i + n - 1 with gradient dz to the dot product, or writes their results. */
TGI_INLINE void visit(bwd_head *h, int64_t i, int64_t n, vf dz, bwd_kind k)
{
  const vf x = tgi_load_lanes(h->x, k.x, i, n);
  const vf weight = tgi_load_mixed(h->weight, k.weight, k.x, i, n), normed = x * h->rstd;
  if (!k.write) {
    h->dot = vf_fma(dz * weight, normed, h->dot);
    return;
  }
  tgi_prefetch(h->dy_ahead, k.x, i);
  tgi_prefetch(h->x_ahead, k.x, i);
  if (h->partial) {
    const vf sum = tgi_load_lanes(h->partial, TG_F32, i, n);
    tgi_store_lanes(h->partial, TG_F32, i, n, vf_fma(dz, normed, sum), false);
  }
  if (h->dx) {
    const vf dx = h->rstd * vf_fma(dz, weight, -(normed * h->mean));
    tgi_store_lanes(h->dx, k.x, i, n, dx, h->stream);
  }
}

/* Both elements of a pair are read before one is written, since dx may alias dy. */
TGI_INLINE void visit_halves(const tgi_coefficients *c, bwd_head *h, int64_t half, int64_t p,
                             int64_t n, bwd_kind k)
{
  const int64_t i = c->first + p, q = TGI_PAIRS_MAX + p;
  const vf first = tgi_load_lanes(h->dy, k.x, i, n);
  const vf second = tgi_load_lanes(h->dy, k.x, half + i, n);
  visit(h, i, n, tgi_rotate_fused(first, second, c->own + p, c->other + p), k);
  visit(h, half + i, n, tgi_rotate_fused(second, first, c->own + q, c->other + q), k);
}

TGI_INLINE void visit_neighbours(const tgi_coefficients *c, bwd_head *h, int64_t j, int64_t n,
                                 bwd_kind k)
{
  const vf dy = tgi_load_lanes(h->dy, k.x, 2 * c->first + j, n);
  const vf dz = tgi_rotate_fused(dy, vf_swap_neighbours(dy), c->own + j, c->other + j);
  visit(h, 2 * c->first + j, n, dz, k);
}

TGI_INLINE void visit_pairs(const tgi_rotation *r, const tgi_coefficients *c, bwd_head *h,
                            bwd_kind k)
{
  int64_t j = 0;
  if (r->interleaved) {
    for (; j + TGI_LANES <= 2 * c->pairs; j += TGI_LANES) {
      visit_neighbours(c, h, j, TGI_LANES, k);
    }
    if (j < 2 * c->pairs) {
      visit_neighbours(c, h, j, 2 * c->pairs - j, k);
    }
    return;
  }
  for (; j + TGI_LANES <= c->pairs; j += TGI_LANES) {
    visit_halves(c, h, r->half, j, TGI_LANES, k);
  }
  if (j < c->pairs) {
    visit_halves(c, h, r->half, j, c->pairs - j, k);
  }
}

/* One pass over a head of token t of sequence b. */
TGI_INLINE void visit_head(const bwd_job *job, tgi_coefficients *c, bwd_head *h, int64_t b,
                           int64_t t, bwd_kind k)
{
  for (int64_t first = 0; first < job->r.half; first += TGI_PAIRS_MAX) {
    if (c->first != first) {
      tgi_coefficients_load(c, &job->r, b, t, first, true);
    }
    visit_pairs(&job->r, c, h, k);
  }
  for (int64_t j = job->r.dim; j < job->head_dim; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, job->head_dim - j);
    visit(h, j, n, tgi_load_lanes(h->dy, k.x, j, n), k);
  }
}

/* Pointers to a head's rows and to its partial sums. */
TGI_INLINE bwd_head find_head(const bwd_job *job, const side *s, int64_t block, int64_t token,
                              int64_t head)
{
  const int64_t b = token / job->seq, t = token % job->seq;
  bwd_head h = {.weight = s->weight,
                .partial =
                    s->partial ? s->partial + block * job->partial_stride + job->head_dim : NULL,
                .rstd = vf_set1(s->rstd[token * s->count + head]),
                .stream = s->stream};
  h.dy = s->dy.data + b * s->dy.sequence + t * s->dy.token + head * s->dy.head;
  h.x = s->x.data + b * s->x.sequence + t * s->x.token + head * s->x.head;
  h.dy_ahead = (const char *)h.dy + s->dy_ahead;
  h.x_ahead = (const char *)h.x + s->x_ahead;
  if (s->dx.data) {
    h.dx = s->dx.data + b * s->dx.sequence + t * s->dx.token + head * s->dx.head;
  }
  return h;
}

/* Adds a token's sums to those of its block. Two levels of sums lose less precision than one. */
TGI_INLINE void fold_token(float *block, int64_t dim)
{
  float *token = block + dim;
  for (int64_t j = 0; j < dim; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, dim - j);
    const vf sum = vf_load_part_f32(block + j, n) + vf_load_part_f32(token + j, n);
    vf_store_part_f32(block + j, n, sum);
    vf_store_part_f32(token + j, n, vf_zero());
  }
}

/* Interleaves a few heads, which hides the latency of their dot products. */
TGI_INLINE void bwd_side(const bwd_job *job, const side *s, tgi_coefficients *c, int64_t block,
                         int64_t token, int x, int weight)
{
  const bwd_kind sum = {x, weight, false}, write = {x, weight, true};
  const int64_t b = token / job->seq, t = token % job->seq;
  for (int64_t begin = 0; begin < s->count; begin += TGI_HEADS_AT_ONCE) {
    const int64_t n = tgi_min_i64(TGI_HEADS_AT_ONCE, s->count - begin);
    float mean[TGI_HEADS_AT_ONCE] = {0};
    for (int64_t i = 0; i < n && s->dx.data; i++) {
      bwd_head h = find_head(job, s, block, token, begin + i);
      h.dot = vf_zero();
      visit_head(job, c, &h, b, t, sum);
      mean[i] = (float)(vf_sum_f64(h.dot) / (double)job->head_dim);
    }
    for (int64_t i = 0; i < n; i++) {
      bwd_head h = find_head(job, s, block, token, begin + i);
      h.mean = vf_set1(mean[i]);
      visit_head(job, c, &h, b, t, write);
    }
  }
  if (s->partial) {
    fold_token(s->partial + block * job->partial_stride, job->head_dim);
  }
}

TGI_INLINE void bwd_block_as(const bwd_job *job, int64_t block, int x, int weight)
{
  const int64_t first = block * job->blocks.block_rows;
  const int64_t last = tgi_min_i64(job->blocks.rows, first + job->blocks.block_rows);
  tgi_coefficients c;
  for (int i = 0; i < 2; i++) {
    if (job->side[i].partial) {
      memset(job->side[i].partial + block * job->partial_stride, 0,
             2 * (size_t)job->head_dim * sizeof(float));
    }
  }
  for (int64_t token = first; token < last; token++) {
    c.first = -1;
    for (int i = 0; i < 2; i++) {
      bwd_side(job, &job->side[i], &c, block, token, x, weight);
    }
  }
}

static void bwd_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
  const bwd_job *job = arg;
  (void)thread;
  for (int64_t block = begin; block < end; block++) {
    TGI_SWITCH_FLOAT(job->x, X,
                     bwd_block_as(job, block, X, (int)X == TG_F32 ? TG_F32 : job->weight));
  }
  vf_stream_fence();
}

size_t TGI_WORKSPACE(qk_norm_rope_bwd)(const tg_context *ctx, const tg_qk_norm_rope_bwd_args *a)
{
  const bwd_job job = plan_bwd(ctx, a);
  return (size_t)(job.blocks.count * job.partial_stride) * sizeof(float);
}

static void add_sums(const tg_context *ctx, const bwd_job *job, const side *s,
                     const tg_tensor *dweight)
{
  if (s->partial) {
    tgi_add_column_sums(ctx,
                        (tgi_column_sums){dweight->data, dweight->dtype, s->partial, job->head_dim,
                                          job->partial_stride, job->blocks.count});
  }
}

tg_status TGI_KERNEL(qk_norm_rope_bwd)(const tg_context *ctx, const tg_qk_norm_rope_bwd_args *a)
{
  bwd_job job = plan_bwd(ctx, a);
  tgi_for(ctx, job.blocks.count, 1, bwd_blocks, &job);
  add_sums(ctx, &job, &job.side[0], &a->dq_weight);
  add_sums(ctx, &job, &job.side[1], &a->dk_weight);
  return TG_OK;
}

void TGI_PLAN(qk_norm_rope_bwd)(const tg_context *ctx, const tg_qk_norm_rope_bwd_args *a,
                                char *text, size_t bytes)
{
  const bwd_job job = plan_bwd(ctx, a);
  snprintf(text, bytes, "%lld blocks of %lld tokens, %s stores", (long long)job.blocks.count,
           (long long)job.blocks.block_rows, job.side[0].stream ? "streaming" : "cached");
}
