/* GELU on the CPU.
 *
 * Method     One pass; cpu/gelu_math.h has the formulas.
 * Work       Pieces of 64 KiB of rows that follow each other in memory, else chunks of rows.
 * Bound      Memory: forward reads x and writes y, backward reads dy and x and writes dx. Results
 *            too large for the caches are stored past them, unless they replace an input.
 */
#include "cpu/gelu_math.h"
#include "cpu/unroll.h"
#include "ops/kernels.h"

#include <stdio.h>

enum { kPieceBytes = 64 << 10, kGroup = 2 };

/* A call as pieces: each is a run of elements at the same offsets in every tensor's own steps. */
typedef struct pieces {
  const tg_tensor *dy, *x, *out; /* dy: NULL in the forward */
  int64_t count, elements;       /* pieces; elements of each */
  int64_t total;                 /* elements of a dense call; 0: pieces are rows */
  bool erf, stream;
} pieces;

static pieces cut(const tg_context *ctx, const tg_tensor *dy, const tg_tensor *x,
                  const tg_tensor *out, tg_gelu_approximation approximation)
{
  const size_t element = tg_dtype_bytes(x->dtype);
  const bool in_place = out->data == x->data || (dy && out->data == dy->data);
  pieces p = {.dy = dy, .x = x, .out = out, .erf = approximation == TG_GELU_ERF};
  int64_t step = tgi_stride(out, 0);
  p.count = x->shape[0];
  p.elements = x->shape[1];
  if (tgi_is_dense(x) && tgi_is_dense(out) && (!dy || tgi_is_dense(dy))) {
    p.total = tgi_numel(x);
    p.elements = step = kPieceBytes / (int64_t)element;
    p.count = (p.total + p.elements - 1) / p.elements;
  }
  p.stream = !in_place && tgi_streamable(out->data, step, element) &&
             tgi_exceeds_cache(ctx, tgi_span_bytes(out));
  return p;
}

static int64_t grain(const pieces *p)
{
  const int64_t bytes = p->elements * (int64_t)tg_dtype_bytes(p->x->dtype);
  return bytes < kPieceBytes ? kPieceBytes / bytes : 1;
}

static void *piece(const pieces *p, const tg_tensor *t, int64_t i)
{
  return p->total ? (char *)t->data + i * p->elements * (int64_t)tg_dtype_bytes(t->dtype)
                  : tgi_row(t, i);
}

static int64_t length(const pieces *p, int64_t i)
{
  return p->total ? tgi_min_i64(p->elements, p->total - i * p->elements) : p->elements;
}

/* GELU, or its derivative. */
TGI_INLINE vf evaluate(vf x, bool derivative, bool erf)
{
  if (derivative) {
    return erf ? vf_gelu_erf_grad(x) : vf_gelu_tanh_grad(x);
  }
  return erf ? vf_gelu_erf(x) : vf_gelu_tanh(x);
}

/* All flags are constants in the caller. The compiler interleaves kGroup vectors
 * (src/CMakeLists.txt tells gcc to), so that the processor need not look far ahead for work. */
TGI_INLINE void map(const void *dy, const void *x, void *out, int64_t n, int t, bool erf,
                    bool stream)
{
  int64_t j = 0;
  for (; j + kGroup * TGI_LANES <= n; j += kGroup * TGI_LANES) {
    vf v[kGroup];
    TGI_UNROLLED(k, kGroup)
    {
      v[k] = evaluate(vf_load(x, t, j + k * TGI_LANES), dy != NULL, erf);
    }
    TGI_UNROLLED(k, kGroup)
    {
      const int64_t i = j + k * TGI_LANES;
      if (dy) {
        v[k] = v[k] * vf_load(dy, t, i);
      }
      vf_put(out, t, i, v[k], stream);
    }
  }
  for (; j < n; j += TGI_LANES) {
    const int64_t left = tgi_min_i64(TGI_LANES, n - j);
    vf v = evaluate(vf_load_part(x, t, j, left), dy != NULL, erf);
    if (dy) {
      v = v * vf_load_part(dy, t, j, left);
    }
    vf_store_part(out, t, j, left, v);
  }
}

TGI_INLINE void map_as(const void *dy, const void *x, void *out, int64_t n, int t, bool erf,
                       bool stream)
{
  if (erf && stream) {
    map(dy, x, out, n, t, true, true);
  } else if (erf) {
    map(dy, x, out, n, t, true, false);
  } else if (stream) {
    map(dy, x, out, n, t, false, true);
  } else {
    map(dy, x, out, n, t, false, false);
  }
}

static void fwd_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
  const pieces *p = arg;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    TGI_SWITCH_FLOAT(
        p->x->dtype, T,
        map_as(NULL, piece(p, p->x, i), piece(p, p->out, i), length(p, i), T, p->erf, p->stream));
  }
  vf_stream_fence();
}

static void bwd_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
  const pieces *p = arg;
  (void)thread;
  for (int64_t i = begin; i < end; i++) {
    TGI_SWITCH_FLOAT(p->x->dtype, T,
                     map_as(piece(p, p->dy, i), piece(p, p->x, i), piece(p, p->out, i),
                            length(p, i), T, p->erf, p->stream));
  }
  vf_stream_fence();
}

static void describe(const pieces *p, char *text, size_t bytes)
{
  snprintf(text, bytes, "%lld pieces of %lld elements, %s stores", (long long)p->count,
           (long long)p->elements, p->stream ? "streaming" : "cached");
}

tg_status TGI_KERNEL(gelu_fwd)(const tg_context *ctx, const tg_gelu_fwd_args *a)
{
  pieces p = cut(ctx, NULL, &a->x, &a->y, a->approximation);
  tgi_for(ctx, p.count, grain(&p), fwd_pieces, &p);
  return TG_OK;
}

void TGI_PLAN(gelu_fwd)(const tg_context *ctx, const tg_gelu_fwd_args *a, char *text, size_t bytes)
{
  const pieces p = cut(ctx, NULL, &a->x, &a->y, a->approximation);
  describe(&p, text, bytes);
}

tg_status TGI_KERNEL(gelu_bwd)(const tg_context *ctx, const tg_gelu_bwd_args *a)
{
  pieces p = cut(ctx, &a->dy, &a->x, &a->dx, a->approximation);
  tgi_for(ctx, p.count, grain(&p), bwd_pieces, &p);
  return TG_OK;
}

void TGI_PLAN(gelu_bwd)(const tg_context *ctx, const tg_gelu_bwd_args *a, char *text, size_t bytes)
{
  const pieces p = cut(ctx, &a->dy, &a->x, &a->dx, a->approximation);
  describe(&p, text, bytes);
}
