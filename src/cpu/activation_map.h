/**
 * An activation over a tensor, y = f(x), or its gradient, dx = dy f'(x): the loop of ops/gelu and
 * ops/silu. Formula, dtype and direction of the inner functions are constants. The compiler
 * interleaves two vectors (src/CMakeLists.txt tells gcc to), so that the processor need not look
 * far ahead for work.
 */
#ifndef TGI_CPU_ACTIVATION_MAP_H
#define TGI_CPU_ACTIVATION_MAP_H

#include "cpu/activation.h"
#include "cpu/pieces.h"

enum { kActivationAhead = 4096 }; /* bytes: a processor's own prefetch stays closer */

typedef struct tgi_activation_call {
  const tg_tensor *dy, *x, *out; /* dy: NULL in the forward */
  tgi_pieces pieces;
  bool erf; /* which form of GELU */
} tgi_activation_call;

static inline tgi_activation_call tgi_activation_of(const tg_context *ctx, const tg_tensor *dy,
                                                    const tg_tensor *x, const tg_tensor *out)
{
  const tg_tensor *const in[2] = {x, dy};
  return (tgi_activation_call){.dy = dy,
                               .x = x,
                               .out = out,
                               .pieces =
                                   tgi_cut(ctx, x->shape[0], x->shape[1], in, dy ? 2 : 1, &out, 1)};
}

TGI_INLINE vf activate_or_grad(tgi_activation f, vf x, int t, bool grad)
{
  return grad ? vf_activate_grad(f, x, t) : vf_activate(f, x);
}

/* Two vectors of `base` from element j on are asked for before it is their turn. */
TGI_INLINE void activation_prefetch(const void *base, int t, int64_t j)
{
  const char *const ahead = (const char *)((uintptr_t)base + kActivationAhead);
  tgi_prefetch(ahead, t, j);
  tgi_prefetch(ahead, t, j + TGI_LANES);
}

/* A piece of each tensor. */
typedef struct activation_run {
  const void *dy, *x; /* dy: NULL in the forward */
  void *out;
  int64_t n;
  bool stream;
} activation_run;

TGI_INLINE void activate_run(tgi_activation f, const activation_run *r, int t, bool grad)
{
  int64_t j = 0;
  for (; j + 2 * TGI_LANES <= r->n; j += 2 * TGI_LANES) {
    vf v[2], g[2];
    activation_prefetch(r->x, t, j);
    if (grad) {
      activation_prefetch(r->dy, t, j);
    }
    vf_load_two(r->x, t, j, v);
    v[0] = activate_or_grad(f, v[0], t, grad);
    v[1] = activate_or_grad(f, v[1], t, grad);
    if (grad) {
      vf_load_two(r->dy, t, j, g);
      v[0] = v[0] * g[0];
      v[1] = v[1] * g[1];
    }
    vf_put_two(r->out, t, j, v, r->stream);
  }
  for (; j < r->n; j += TGI_LANES) {
    const int64_t left = tgi_min_i64(TGI_LANES, r->n - j);
    vf v = activate_or_grad(f, vf_load_part(r->x, t, j, left), t, grad);
    if (grad) {
      v = v * vf_load_part(r->dy, t, j, left);
    }
    vf_store_part(r->out, t, j, left, v);
  }
}

/** Pieces [begin, end) of a call; f and grad are constants. */
TGI_INLINE void tgi_activate_pieces(const tgi_activation_call *c, tgi_activation f, bool grad,
                                    int64_t begin, int64_t end)
{
  const tgi_pieces *p = &c->pieces;
  for (int64_t i = begin; i < end; i++) {
    const activation_run r = {grad ? tgi_piece(p, c->dy, i) : NULL, tgi_piece(p, c->x, i),
                              tgi_piece(p, c->out, i), tgi_piece_length(p, i), p->stream};
    TGI_SWITCH_FLOAT(c->x->dtype, T, activate_run(f, &r, T, grad));
  }
  vf_stream_fence();
}

#endif
