/**
 * A gated activation over tensors, and its gradients: the loops of ops/swiglu, ops/geglu and
 * ops/swiglu_clamped. Formula, dtypes and direction of the inner functions are constants; how gate
 * and up lie and whether stores go past the caches is asked for every two vectors.
 */
#ifndef TGI_CPU_GATED_MAP_H
#define TGI_CPU_GATED_MAP_H

#include "core/gate_up_view.h"
#include "cpu/activation.h"
#include "cpu/pieces.h"
#include "tegula/rounding.h"
#include <float.h>
#include <string.h>

/** Which formula: one of cpu/activation.h times up, or that of swiglu_clamped. */
typedef enum tgi_gate {
  TGI_GATE_SILU = TGI_SILU,
  TGI_GATE_GELU_TANH = TGI_GELU_TANH,
  TGI_GATE_GELU_ERF = TGI_GELU_ERF,
  TGI_GATE_CLAMPED,
} tgi_gate;

typedef struct tgi_gated_call {
  tg_tensor gate, up;      /* gate: the packed tensor if interleaved; up is absent then */
  tg_tensor dgate, dup;    /* likewise; absent in the forward and where not asked for */
  const tg_tensor *dy, *y; /* of the backward; of the forward */
  tgi_pieces pieces;
  tg_dtype dtype;
  float alpha, limit, lowest; /* of the clamped gate */
  bool interleaved, hf, erf;
} tgi_gated_call;

static inline void gated_views(tgi_gate_up in, tg_tensor *gate, tg_tensor *up)
{
  if (in.packing == TG_GATE_UP_INTERLEAVED) {
    *gate = *in.gate_up;
    *up = (tg_tensor){0};
  } else {
    tgi_gate_up_split(in, gate, up);
  }
}

static inline tgi_gated_call tgi_gated_fwd_of(const tg_context *ctx, tgi_gate_up in,
                                              const tg_tensor *y, tg_rounding rounding)
{
  tgi_gated_call c = {.y = y,
                      .dtype = y->dtype,
                      .interleaved = in.packing == TG_GATE_UP_INTERLEAVED,
                      .hf = rounding == TG_ROUNDING_HF};
  gated_views(in, &c.gate, &c.up);
  const tg_tensor *const inputs[2] = {&c.gate, &c.up};
  c.pieces = tgi_cut(ctx, y->shape[0], y->shape[1], inputs, 2, &y, 1);
  return c;
}

static inline tgi_gated_call tgi_gated_bwd_of(const tg_context *ctx, const tg_tensor *dy,
                                              tgi_gate_up in, tgi_gate_up out)
{
  tgi_gated_call c = {
      .dy = dy, .dtype = dy->dtype, .interleaved = in.packing == TG_GATE_UP_INTERLEAVED};
  gated_views(in, &c.gate, &c.up);
  gated_views(out, &c.dgate, &c.dup);
  const tg_tensor *const inputs[3] = {&c.gate, &c.up, dy}, *const outputs[2] = {&c.dgate, &c.dup};
  c.pieces = tgi_cut(ctx, dy->shape[0], dy->shape[1], inputs, 3, outputs, 2);
  return c;
}

/** The scalars of the clamped gate. Below `lowest` its sigmoid is 0 in f32, down to -infinity. */
static inline void tgi_gated_clamp(tgi_gated_call *c, float alpha, float limit)
{
  const float lowest = -89.0f / alpha;
  c->alpha = alpha;
  c->limit = (float)tgi_round(c->dtype, (double)limit);
  c->lowest = lowest < -FLT_MAX ? -FLT_MAX : lowest;
}

/* One row or piece of each tensor. */
typedef struct gated_run {
  const void *gate, *up, *dy;
  const void *gate_ahead, *up_ahead; /* of the forward: the next rows, if rows have gaps */
  void *y, *dgate, *dup;
  int64_t n;
} gated_run;

/* t: the dtype that steps are rounded to; f32 where they are not. */
TGI_INLINE vf gated_value(const tgi_gated_call *c, tgi_gate f, vf gate, vf up, int t)
{
  if (f != TGI_GATE_CLAMPED) {
    return vf_round(t, vf_activate((tgi_activation)f, gate)) * up;
  }
  const vf limit = vf_set1(c->limit);
  const vf g = vf_max(vf_set1(-FLT_MAX), vf_min(limit, gate));
  const vf u = vf_min(limit, vf_max(-limit, up));
  const vf s = vf_round(t, vf_logistic(vf_round(t, vf_set1(c->alpha) * g)));
  return vf_round(t, u + vf_set1(1.0f)) * vf_round(t, g * s);
}

TGI_INLINE void gated_gradients(const tgi_gated_call *c, tgi_gate f, vf dy, vf gate, vf up, int t,
                                vf *dgate, vf *dup)
{
  vf value;
  if (f != TGI_GATE_CLAMPED) {
    *dgate = dy * up * vf_activate_both((tgi_activation)f, gate, t, &value);
    *dup = dy * value;
    return;
  }
  const vf limit = vf_set1(c->limit), zero = vf_zero();
  const vf g = vf_max(vf_set1(c->lowest), vf_min(limit, gate));
  const vf u = vf_min(limit, vf_max(-limit, up));
  const vf_logistic_parts p = vf_logistic_parts_of(vf_set1(c->alpha) * g, t);
  *dgate = vf_select(vf_le(gate, limit), dy * (u + vf_set1(1.0f)) * p.slope, zero);
  *dup = vf_select(vf_le(vf_abs(up), limit), dy * vf_fma(g, p.s, g * p.low), zero);
}

/* Two vectors each of gate and up. */
TGI_INLINE void gated_load(const gated_run *r, int t, int64_t j, bool pairs, vf gate[2], vf up[2])
{
  if (pairs) {
    vf_load_pairs(r->gate, t, j, &gate[0], &up[0]);
    vf_load_pairs(r->gate, t, j + TGI_LANES, &gate[1], &up[1]);
  } else {
    vf_load_two(r->gate, t, j, gate);
    vf_load_two(r->up, t, j, up);
  }
}

/* Elements of one step of the loops, and room for one step's worth of every tensor: the last
 * elements of a run are moved there, so that the loops need no second form for parts of vectors. */
enum { TGI_GATED_STEP = 2 * TGI_LANES };

typedef struct gated_rest {
  _Alignas(64) float gate[2 * TGI_GATED_STEP];
  _Alignas(64) float dgate[2 * TGI_GATED_STEP];
  _Alignas(64) float up[TGI_GATED_STEP];
  _Alignas(64) float dup[TGI_GATED_STEP];
  _Alignas(64) float dy[TGI_GATED_STEP];
  _Alignas(64) float y[TGI_GATED_STEP];
} gated_rest;

/* The run of `n` elements from element `from` on of r, in `rest`. */
static inline gated_run gated_load_rest(const tgi_gated_call *c, const gated_run *r, int64_t from,
                                        int64_t n, gated_rest *rest)
{
  const size_t bytes = tg_dtype_bytes(c->dtype), pair = c->interleaved ? 2 : 1;
  const size_t skip = (size_t)from * bytes, size = (size_t)n * bytes;
  memset(rest, 0, sizeof *rest);
  memcpy(rest->gate, (const char *)r->gate + skip * pair, size * pair);
  if (r->up) {
    memcpy(rest->up, (const char *)r->up + skip, size);
  }
  if (r->dy) {
    memcpy(rest->dy, (const char *)r->dy + skip, size);
  }
  return (gated_run){.gate = rest->gate,
                     .up = rest->up,
                     .dy = rest->dy,
                     .gate_ahead = rest->gate,
                     .up_ahead = rest->up,
                     .y = rest->y,
                     .dgate = r->dgate ? rest->dgate : NULL,
                     .dup = r->dup ? rest->dup : NULL,
                     .n = TGI_GATED_STEP};
}

static inline void gated_store_rest(const tgi_gated_call *c, const gated_run *r, int64_t from,
                                    int64_t n, const gated_rest *rest)
{
  const size_t bytes = tg_dtype_bytes(c->dtype), pair = c->interleaved ? 2 : 1;
  const size_t skip = (size_t)from * bytes, size = (size_t)n * bytes;
  if (r->y) {
    memcpy((char *)r->y + skip, rest->y, size);
  }
  if (r->dgate) {
    memcpy((char *)r->dgate + skip * pair, rest->dgate, size * pair);
  }
  if (r->dup) {
    memcpy((char *)r->dup + skip, rest->dup, size);
  }
}

/* steps: t, or f32 if steps are not rounded. Elements [0, r.n), whole steps. */
TGI_INLINE void gated_fwd_run(const tgi_gated_call *c, tgi_gate f, gated_run r, int t, int steps,
                              bool stream)
{
  const bool pairs = c->interleaved;
  for (int64_t j = 0; j < r.n; j += TGI_GATED_STEP) {
    vf gate[2], up[2], y[2];
    if (!pairs) {
      for (int i = 0; i < 2; i++) {
        tgi_prefetch(r.gate_ahead, t, j + i * TGI_LANES);
        tgi_prefetch(r.up_ahead, t, j + i * TGI_LANES);
      }
    }
    gated_load(&r, t, j, pairs, gate, up);
    y[0] = gated_value(c, f, gate[0], up[0], steps);
    y[1] = gated_value(c, f, gate[1], up[1], steps);
    vf_put_two(r.y, t, j, y, stream);
  }
}

/* Two vectors each of dgate and dup. */
TGI_INLINE void gated_put(const gated_run *r, int t, int64_t j, bool pairs, const vf dgate[2],
                          const vf dup[2], bool stream)
{
  if (pairs) {
    vf_put_pairs(r->dgate, t, j, dgate[0], dup[0], stream);
    vf_put_pairs(r->dgate, t, j + TGI_LANES, dgate[1], dup[1], stream);
    return;
  }
  if (r->dgate) {
    vf_put_two(r->dgate, t, j, dgate, stream);
  }
  if (r->dup) {
    vf_put_two(r->dup, t, j, dup, stream);
  }
}

TGI_INLINE void gated_bwd_run(const tgi_gated_call *c, tgi_gate f, gated_run r, int t, bool pairs,
                              bool stream)
{
  for (int64_t j = 0; j < r.n; j += TGI_GATED_STEP) {
    vf gate[2], up[2], dy[2], dgate[2], dup[2];
    gated_load(&r, t, j, pairs, gate, up);
    vf_load_two(r.dy, t, j, dy);
    gated_gradients(c, f, dy[0], gate[0], up[0], t, &dgate[0], &dup[0]);
    gated_gradients(c, f, dy[1], gate[1], up[1], t, &dgate[1], &dup[1]);
    if (stream) {
      gated_put(&r, t, j, pairs, dgate, dup, true);
    } else {
      gated_put(&r, t, j, pairs, dgate, dup, false);
    }
  }
}

/* The whole steps of a run, then what is left. */
TGI_INLINE void gated_run_as(const tgi_gated_call *c, tgi_gate f, const gated_run *all, int t,
                             int steps, bool grad)
{
  const int64_t left = all->n % TGI_GATED_STEP, whole = all->n - left;
  gated_rest rest;
  gated_run r = *all;
  r.n = whole;
  for (int pass = 0; pass < (left ? 2 : 1); pass++) {
    const bool stream = pass == 0 && c->pieces.stream;
    if (pass == 1) {
      r = gated_load_rest(c, all, whole, left, &rest);
    }
    if (grad && c->interleaved) {
      gated_bwd_run(c, f, r, t, true, stream);
    } else if (grad && stream) {
      gated_bwd_run(c, f, r, t, false, true);
    } else if (grad) {
      gated_bwd_run(c, f, r, t, false, false);
    } else {
      gated_fwd_run(c, f, r, t, steps, stream);
    }
  }
  if (left) {
    gated_store_rest(c, all, whole, left, &rest);
  }
}

/* Piece i of the call. What the forward and the backward have not is NULL. */
static inline gated_run gated_piece(const tgi_gated_call *c, int64_t i)
{
  static const tg_tensor absent;
  const tgi_pieces *p = &c->pieces;
  const int64_t ahead = p->total ? i : i + 1; /* a processor's own prefetch stops at a gap */
  return (gated_run){.gate = tgi_piece(p, &c->gate, i),
                     .up = tgi_piece(p, &c->up, i),
                     .dy = tgi_piece(p, c->dy ? c->dy : &absent, i),
                     .gate_ahead = tgi_piece(p, &c->gate, ahead),
                     .up_ahead = tgi_piece(p, &c->up, ahead),
                     .y = tgi_piece(p, c->y ? c->y : &absent, i),
                     .dgate = tgi_piece(p, &c->dgate, i),
                     .dup = tgi_piece(p, &c->dup, i),
                     .n = tgi_piece_length(p, i)};
}

TGI_INLINE void gated_piece_as(const tgi_gated_call *c, tgi_gate f, const gated_run *r, int t,
                               bool grad)
{
  if (t != TG_F32 && !grad && c->hf) {
    gated_run_as(c, f, r, t, t, grad);
  } else {
    gated_run_as(c, f, r, t, TG_F32, grad);
  }
}

/** Pieces [begin, end) of a call; f and grad are constants. */
TGI_INLINE void tgi_gated_pieces(const tgi_gated_call *c, tgi_gate f, bool grad, int64_t begin,
                                 int64_t end)
{
  for (int64_t i = begin; i < end; i++) {
    const gated_run r = gated_piece(c, i);
    TGI_SWITCH_FLOAT(c->dtype, T, gated_piece_as(c, f, &r, T, grad));
  }
  vf_stream_fence();
}

#endif
