/**
 * An activation over a tensor, y = f(x), or its gradient, dx = dy f'(x): the loop of ops/gelu and
 * ops/silu. All flags of the inner functions are constants. The compiler interleaves two vectors
 * (src/CMakeLists.txt tells gcc to), so that the processor need not look far ahead for work.
 */
#ifndef TGI_CPU_ACTIVATION_MAP_H
#define TGI_CPU_ACTIVATION_MAP_H

#include "cpu/activation.h"
#include "cpu/pieces.h"

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

TGI_INLINE void activate_run(tgi_activation f, const void *dy, const void *x, void *out, int64_t n,
                             int t, bool stream)
{
  int64_t j = 0;
  for (; j + 2 * TGI_LANES <= n; j += 2 * TGI_LANES) {
    vf v[2], g[2];
    vf_load_two(x, t, j, v);
    v[0] = activate_or_grad(f, v[0], t, dy != NULL);
    v[1] = activate_or_grad(f, v[1], t, dy != NULL);
    if (dy) {
      vf_load_two(dy, t, j, g);
      v[0] = v[0] * g[0];
      v[1] = v[1] * g[1];
    }
    vf_put_two(out, t, j, v, stream);
  }
  for (; j < n; j += TGI_LANES) {
    const int64_t left = tgi_min_i64(TGI_LANES, n - j);
    vf v = activate_or_grad(f, vf_load_part(x, t, j, left), t, dy != NULL);
    if (dy) {
      v = v * vf_load_part(dy, t, j, left);
    }
    vf_store_part(out, t, j, left, v);
  }
}

TGI_INLINE void activate_piece(const tgi_activation_call *c, tgi_activation f, int64_t i, int t,
                               bool grad)
{
  const tgi_pieces *p = &c->pieces;
  const void *dy = grad ? tgi_piece(p, c->dy, i) : NULL, *x = tgi_piece(p, c->x, i);
  void *out = tgi_piece(p, c->out, i);
  if (p->stream) {
    activate_run(f, dy, x, out, tgi_piece_length(p, i), t, true);
  } else {
    activate_run(f, dy, x, out, tgi_piece_length(p, i), t, false);
  }
}

/** Pieces [begin, end) of a call; f and grad are constants. */
TGI_INLINE void tgi_activate_pieces(const tgi_activation_call *c, tgi_activation f, bool grad,
                                    int64_t begin, int64_t end)
{
  for (int64_t i = begin; i < end; i++) {
    TGI_SWITCH_FLOAT(c->x->dtype, T, activate_piece(c, f, i, T, grad));
  }
  vf_stream_fence();
}

#endif
