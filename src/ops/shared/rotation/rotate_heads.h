/**
 * Rotating the heads of tokens, with or without a norm before it: the kernel that rope (both
 * directions: the transpose of a rotation is a rotation with other coefficients) and the forward of
 * qk_norm_rope share.
 *
 * Method     A token's rows of the tables are turned into coefficients in f32 once and serve all of
 *            its heads; each head is then read and written once.
 * Work       Chunks of tokens of at most 256 KiB.
 * Bound      Memory. A token some KiB ahead is prefetched, head by head: two heads in turn are not
 *            always neighbours, and a norm reads its head before anything is written. Results too
 *            large for the caches are stored past them, which saves reading the lines first, unless
 *            they replace an input.
 */
#ifndef TGI_OPS_ROTATE_HEADS_H
#define TGI_OPS_ROTATE_HEADS_H

#include "core/context_state.h"
#include "cpu/simd.h"
#include "ops/shared/rotation/rotation.h"

enum {
  TGI_PAIRS_MAX = 256,
  TGI_HEADS_AT_ONCE = 4,
  TGI_ROTATE_CHUNK_BYTES = 256 << 10,
  TGI_ROTATE_AHEAD_BYTES = 8 << 10 /* of q or k, and one token */
};

/**
 * Of pairs first .. first + pairs - 1:  y[j] = x[j] * own[j] + x[partner of j] * other[j].
 * HALVES: the first elements of the pairs, and from TGI_PAIRS_MAX on the second ones. INTERLEAVED:
 * elements in their order.
 */
typedef struct tgi_coefficients {
  float own[2 * TGI_PAIRS_MAX], other[2 * TGI_PAIRS_MAX];
  int64_t first, pairs; /* first: -1 if there are none */
} tgi_coefficients;

/** The n elements from base[i] on; where n is the constant TGI_LANES this is a plain load. */
TGI_INLINE vf tgi_load_lanes(const void *base, int t, int64_t i, int64_t n)
{
  return n == TGI_LANES ? vf_load(base, t, i) : vf_load_part(base, t, i, n);
}

/** tgi_load_lanes of what is f32 or of the constant dtype t: code for each of the two would be
 * twice the kernel. */
TGI_INLINE vf tgi_load_mixed(const void *base, int mixed, int t, int64_t i, int64_t n)
{
  return mixed == TG_F32 ? tgi_load_lanes(base, TG_F32, i, n) : tgi_load_lanes(base, t, i, n);
}

TGI_INLINE void tgi_store_lanes(void *base, int t, int64_t i, int64_t n, vf v, bool stream)
{
  if (n == TGI_LANES) {
    vf_put(base, t, i, v, stream);
  } else {
    vf_store_part(base, t, i, n, v);
  }
}

/** `back`: of the transpose. */
TGI_INLINE void tgi_coefficients_of_halves(tgi_coefficients *c, const tgi_rotation *r,
                                           const void *cos, const void *sin, int t, bool back)
{
  const int64_t second = r->wide ? r->half : 0;
  for (int64_t p = 0; p < c->pairs; p += TGI_LANES) {
    const int64_t i = c->first + p, n = tgi_min_i64(TGI_LANES, c->pairs - p);
    const vf sin_first = tgi_load_lanes(sin, t, i, n);
    const vf sin_second = tgi_load_lanes(sin, t, second + i, n);
    vf_store_f32(c->own + p, tgi_load_lanes(cos, t, i, n));
    vf_store_f32(c->own + TGI_PAIRS_MAX + p, tgi_load_lanes(cos, t, second + i, n));
    vf_store_f32(c->other + p, back ? sin_second : -sin_first);
    vf_store_f32(c->other + TGI_PAIRS_MAX + p, back ? -sin_first : sin_second);
  }
}

TGI_INLINE float tgi_table_value(const void *table, int t, int64_t i)
{
  return t == TG_F32    ? ((const float *)table)[i]
         : t == TG_BF16 ? tgi_bf16_to_f32(((const uint16_t *)table)[i])
                        : tgi_f16_to_f32(((const uint16_t *)table)[i]);
}

TGI_INLINE void tgi_coefficients_interleaved(tgi_coefficients *c, const tgi_rotation *r,
                                             const void *cos, const void *sin, int t, bool back)
{
  for (int64_t p = 0; p < c->pairs; p++) {
    const int64_t pair = c->first + p;
    const int64_t first = r->wide ? 2 * pair : pair, second = r->wide ? 2 * pair + 1 : pair;
    const float sin_first = tgi_table_value(sin, t, first);
    const float sin_second = tgi_table_value(sin, t, second);
    c->own[2 * p] = tgi_table_value(cos, t, first);
    c->own[2 * p + 1] = tgi_table_value(cos, t, second);
    c->other[2 * p] = back ? sin_second : -sin_first;
    c->other[2 * p + 1] = back ? -sin_first : sin_second;
  }
  for (int64_t j = 2 * c->pairs; j % TGI_LANES != 0; j++) { /* lanes past the end enter sums */
    c->own[j] = c->other[j] = 0;
  }
}

/** Those of token `t` of sequence `b`, for as many pairs from `first` on as there is room for. */
static inline void tgi_coefficients_load(tgi_coefficients *c, const tgi_rotation *r, int64_t b,
                                         int64_t t, int64_t first, bool back)
{
  const void *cos = tgi_table_row(r, &r->cos, b, t), *sin = tgi_table_row(r, &r->sin, b, t);
  c->first = first;
  c->pairs = tgi_min_i64(TGI_PAIRS_MAX, r->half - first);
  TGI_SWITCH_FLOAT(
      r->cos.dtype, T,
      if (r->interleaved) { tgi_coefficients_interleaved(c, r, cos, sin, T, back); } //
      else { tgi_coefficients_of_halves(c, r, cos, sin, T, back); });
}

/** Two products and their sum; the products are rounded to `step`. */
TGI_INLINE vf tgi_rotate(vf x, vf partner, const float *own, const float *other, int step)
{
  return vf_round(step, x * vf_load_f32(own)) + vf_round(step, partner * vf_load_f32(other));
}

/** The same with one rounding less. */
TGI_INLINE vf tgi_rotate_fused(vf x, vf partner, const float *own, const float *other)
{
  return vf_fma(x, vf_load_f32(own), partner * vf_load_f32(other));
}

/** Where the heads of a view lie, in bytes. */
typedef struct tgi_head_grid {
  char *data;
  int64_t sequence, token, head;
} tgi_head_grid;

static inline tgi_head_grid tgi_head_grid_of(const tg_tensor *x)
{
  const int64_t bytes = (int64_t)tg_dtype_bytes(x->dtype);
  return (tgi_head_grid){x->data, bytes * tgi_stride(x, 0), bytes * tgi_stride(x, 1),
                         bytes * tgi_stride(x, 2)};
}

/** Bytes from a head of the view to the one to be prefetched. */
static inline int64_t tgi_heads_ahead(const tg_tensor *x)
{
  const int64_t bytes = (int64_t)tg_dtype_bytes(x->dtype);
  const int64_t token = bytes * x->shape[2] * x->shape[3];
  return bytes * tgi_stride(x, 1) * (1 + TGI_ROTATE_AHEAD_BYTES / (token ? token : 1));
}

/** q or k: what is rotated and, before that, normed (weight NULL: not). */
typedef struct tgi_heads {
  tgi_head_grid x, y;
  int64_t count;      /* heads of a token */
  int64_t ahead;      /* bytes from a head of x to the one to be prefetched */
  const void *weight; /* [head_dim] */
  float *rstd;        /* [tokens, count]; NULL: nobody wants them */
  bool stream;
} tgi_heads;

typedef struct tgi_rotate_job {
  tgi_rotation r;
  tgi_heads side[2];
  int64_t tokens, seq, head_dim;
  int x, weight; /* dtypes */
  bool back;     /* the transposed rotation */
  bool steps;    /* each step is rounded to x's dtype */
  float eps;
} tgi_rotate_job;

/** What a caller does; all constants but `weight`, which is x or f32. */
typedef struct tgi_rotate_kind {
  int x, weight, step;
  bool normed;
} tgi_rotate_kind;

typedef struct tgi_one_head {
  vf rstd;
  const void *x, *weight;
  const void *ahead; /* to be prefetched */
  void *y;
  bool stream;
} tgi_one_head;

TGI_INLINE vf tgi_head_value(const tgi_one_head *h, int64_t i, int64_t n, tgi_rotate_kind k)
{
  const vf x = tgi_load_lanes(h->x, k.x, i, n);
  tgi_prefetch(h->ahead, k.x, i);
  if (!k.normed) {
    return x;
  }
  const vf weight = tgi_load_mixed(h->weight, k.weight, k.x, i, n);
  return vf_round(k.step, vf_round(k.step, x * h->rstd) * weight);
}

/** Pairs p .. p + n - 1 of the coefficients. */
TGI_INLINE void tgi_rotate_halves(const tgi_coefficients *c, const tgi_one_head *h, int64_t half,
                                  int64_t p, int64_t n, tgi_rotate_kind k)
{
  const int64_t i = c->first + p, q = TGI_PAIRS_MAX + p;
  const vf first = tgi_head_value(h, i, n, k), second = tgi_head_value(h, half + i, n, k);
  tgi_store_lanes(h->y, k.x, i, n, tgi_rotate(first, second, c->own + p, c->other + p, k.step),
                  h->stream);
  tgi_store_lanes(h->y, k.x, half + i, n,
                  tgi_rotate(second, first, c->own + q, c->other + q, k.step), h->stream);
}

/** Elements j .. j + n - 1 of the coefficients. */
TGI_INLINE void tgi_rotate_neighbours(const tgi_coefficients *c, const tgi_one_head *h, int64_t j,
                                      int64_t n, tgi_rotate_kind k)
{
  const vf x = tgi_head_value(h, 2 * c->first + j, n, k);
  tgi_store_lanes(h->y, k.x, 2 * c->first + j, n,
                  tgi_rotate(x, vf_swap_neighbours(x), c->own + j, c->other + j, k.step),
                  h->stream);
}

TGI_INLINE void tgi_rotate_pairs(const tgi_rotation *r, const tgi_coefficients *c,
                                 const tgi_one_head *h, tgi_rotate_kind k)
{
  int64_t j = 0;
  if (r->interleaved) {
    const int64_t n = 2 * c->pairs;
    for (; j + TGI_LANES <= n; j += TGI_LANES) {
      tgi_rotate_neighbours(c, h, j, TGI_LANES, k);
    }
    if (j < n) {
      tgi_rotate_neighbours(c, h, j, n - j, k);
    }
    return;
  }
  for (; j + TGI_LANES <= c->pairs; j += TGI_LANES) {
    tgi_rotate_halves(c, h, r->half, j, TGI_LANES, k);
  }
  if (j < c->pairs) {
    tgi_rotate_halves(c, h, r->half, j, c->pairs - j, k);
  }
}

/** Two accumulators: heads are short. */
TGI_INLINE float tgi_head_rstd(const void *x, int t, int64_t dim, float eps)
{
  vf s[2] = {vf_zero(), vf_zero()};
  int64_t j = 0;
  for (; j + 2 * TGI_LANES <= dim; j += 2 * TGI_LANES) {
    const vf a = vf_load(x, t, j), b = vf_load(x, t, j + TGI_LANES);
    s[0] = vf_fma(a, a, s[0]);
    s[1] = vf_fma(b, b, s[1]);
  }
  for (; j < dim; j += TGI_LANES) {
    const vf a = vf_load_part(x, t, j, tgi_min_i64(TGI_LANES, dim - j));
    s[0] = vf_fma(a, a, s[0]);
  }
  return (float)(1 / sqrt(vf_sum_f64(s[0] + s[1]) / (double)dim + (double)eps));
}

/** One head of token t of sequence b; c keeps the coefficients from head to head. */
TGI_INLINE void tgi_rotate_head(const tgi_rotate_job *job, tgi_coefficients *c,
                                const tgi_one_head *h, int64_t b, int64_t t, tgi_rotate_kind k)
{
  for (int64_t first = 0; first < job->r.half; first += TGI_PAIRS_MAX) {
    if (c->first != first) {
      tgi_coefficients_load(c, &job->r, b, t, first, job->back);
    }
    tgi_rotate_pairs(&job->r, c, h, k);
  }
  for (int64_t j = job->r.dim; j < job->head_dim; j += TGI_LANES) {
    const int64_t n = tgi_min_i64(TGI_LANES, job->head_dim - j);
    tgi_store_lanes(h->y, k.x, j, n, tgi_head_value(h, j, n, k), false);
  }
}

/** All heads of one side of a token. The norms of a few heads are found together, so that their
 * sums and roots wait for each other less. */
TGI_INLINE void tgi_rotate_side(const tgi_rotate_job *job, const tgi_heads *s, tgi_coefficients *c,
                                int64_t token, tgi_rotate_kind k)
{
  if (s->count == 0) {
    return; /* an absent side */
  }
  const int64_t b = token / job->seq, t = token % job->seq;
  const char *x = s->x.data + b * s->x.sequence + t * s->x.token;
  char *y = s->y.data + b * s->y.sequence + t * s->y.token;
  tgi_one_head h = {.weight = s->weight, .stream = s->stream};
  for (int64_t begin = 0; begin < s->count; begin += TGI_HEADS_AT_ONCE) {
    const int64_t n = tgi_min_i64(TGI_HEADS_AT_ONCE, s->count - begin);
    float rstd[TGI_HEADS_AT_ONCE];
    for (int64_t i = 0; i < n && k.normed; i++) {
      rstd[i] = tgi_head_rstd(x + (begin + i) * s->x.head, k.x, job->head_dim, job->eps);
      if (s->rstd) {
        s->rstd[token * s->count + begin + i] = rstd[i];
      }
    }
    for (int64_t i = 0; i < n; i++) {
      h.x = x + (begin + i) * s->x.head;
      h.y = y + (begin + i) * s->y.head;
      h.ahead = (const char *)h.x + s->ahead;
      if (k.normed) {
        h.rstd = vf_set1(rstd[i]);
      }
      tgi_rotate_head(job, c, &h, b, t, k);
    }
  }
}

TGI_INLINE void tgi_rotate_tokens(const tgi_rotate_job *job, int64_t begin, int64_t end,
                                  tgi_rotate_kind k)
{
  tgi_coefficients c;
  for (int64_t token = begin; token < end; token++) {
    c.first = -1;
    for (int i = 0; i < 2; i++) {
      tgi_rotate_side(job, &job->side[i], &c, token, k);
    }
  }
  vf_stream_fence();
}

/** How the views of one side are walked. */
static inline tgi_heads tgi_heads_of(const tg_context *ctx, const tgi_rotation *r,
                                     const tg_tensor *x, const tg_tensor *y)
{
  const size_t bytes = tg_dtype_bytes(x->dtype);
  tgi_heads s = {.x = tgi_head_grid_of(x),
                 .y = tgi_head_grid_of(y),
                 .count = x->shape[2],
                 .ahead = tgi_heads_ahead(x)};
  s.stream = y->data != x->data && (r->interleaved || r->half % TGI_LANES == 0) &&
             tgi_streamable(y->data, tgi_stride(y, 0), bytes) &&
             tgi_streamable(y->data, tgi_stride(y, 1), bytes) &&
             tgi_streamable(y->data, tgi_stride(y, 2), bytes) &&
             tgi_exceeds_cache(ctx, tgi_span_bytes(y));
  return s;
}

static inline int64_t tgi_rotate_grain(const tgi_rotate_job *job)
{
  const int64_t heads = job->side[0].count + job->side[1].count;
  const int64_t bytes = job->head_dim * (job->x == TG_F32 ? 4 : 2);
  const int64_t most = TGI_ROTATE_CHUNK_BYTES / (heads ? heads * bytes : 1);
  const int64_t tokens = tgi_min_i64(most, job->tokens / 16);
  return tokens > 1 ? tokens : 1;
}

#endif
