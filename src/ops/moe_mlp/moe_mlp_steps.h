/**
 * moe_mlp as calls of other ops: their args structs, with what passes between them in the
 * workspace. The calls' own workspace follows it, one after the other. For the CPU and CUDA;
 * without memory, while the workspace is sized, the views that lie in it have none.
 *
 *   forward    up      a = act(x gate_up + bias), gathered, with h
 *              down    z = a down + bias
 *              sum     y = the tokens' rows of z, weighed
 *   backward   back    q = dy down^T, gathered
 *              (rows)  dh, w a in q's place, the scores' gradients by row: the op's own kernel
 *              down    ddown += dy^T (w a), with the operands' names exchanged: dy is what is
 *                      gathered, so the layout of ddown is the other one
 *              up      dgate_up, dgate_up_bias, and dx by row
 *              sum     dx = the tokens' rows of it
 */
#ifndef TGI_OPS_MOE_MLP_STEPS_H
#define TGI_OPS_MOE_MLP_STEPS_H

#include "ops/shared/gated/gated_choice.h"

/** A part of the workspace behind those taken before. */
static inline tg_tensor moe_mlp_take(void *workspace, size_t *used, tg_dtype dtype, int64_t rows,
                                     int64_t cols)
{
  void *at = workspace ? (char *)workspace + *used : NULL;
  *used += ((size_t)rows * (size_t)cols * tg_dtype_bytes(dtype) + 255) / 256 * 256;
  return tg_tensor_2d(at, dtype, rows, cols);
}

/* ---- forward ---- */

typedef struct moe_mlp_fwd_steps {
  tg_grouped_linear_fwd_args up, down;
  tg_moe_combine_fwd_args sum;
  size_t bytes; /* of the workspace that the steps share */
} moe_mlp_fwd_steps;

static inline moe_mlp_fwd_steps moe_mlp_fwd_steps_of(const tg_moe_mlp_fwd_args *a)
{
  const int64_t rows = a->slot.shape[0], hidden = a->x.shape[1];
  const int64_t inter = a->down.shape[a->in_first ? 1 : 2];
  const bool saves = tgi_present(&a->preactivation);
  moe_mlp_fwd_steps s;
  memset(&s, 0, sizeof s);
  const tg_tensor act = moe_mlp_take(a->workspace, &s.bytes, a->x.dtype, rows, inter);
  size_t z_used = s.bytes, h_used = s.bytes; /* one place: h is over where z begins */
  const tg_tensor z = moe_mlp_take(a->workspace, &z_used, a->x.dtype, rows, hidden);
  const tg_tensor h = moe_mlp_take(a->workspace, &h_used, a->x.dtype, rows, 2 * inter);
  s.bytes = !saves && h_used > z_used ? h_used : z_used;
  s.up.x = a->x;
  s.up.weight = a->gate_up;
  s.up.bias = a->gate_up_bias;
  s.up.offsets = a->offsets;
  s.up.slot = a->slot;
  s.up.slots_per_row = a->row.shape[1];
  s.up.y = act;
  s.up.preactivation = saves ? a->preactivation : h;
  s.up.in_first = a->in_first;
  s.up.activation = a->activation;
  s.up.alpha = a->alpha;
  s.up.limit = a->limit;
  s.up.packing = a->packing;
  s.down.x = act;
  s.down.weight = a->down;
  s.down.bias = a->down_bias;
  s.down.offsets = a->offsets;
  s.down.y = z;
  s.down.in_first = a->in_first;
  s.up.workspace = s.down.workspace = a->workspace ? (char *)a->workspace + s.bytes : NULL;
  s.sum.row = a->row;
  s.sum.weights = a->weights;
  s.sum.y = z;
  s.sum.residual = a->residual;
  s.sum.out = a->y;
  s.sum.rounding = TG_ROUNDING_ONCE;
  return s;
}

/* ---- backward ---- */

typedef struct moe_mlp_bwd_steps {
  tg_grouped_linear_fwd_args back;
  tg_grouped_linear_bwd_args down, up;
  tg_moe_combine_fwd_args sum;
  tg_tensor q, dh, scores; /* of rows; scores [rows, 1] f32; absent where nothing asks for them */
  bool has_back, has_down, has_up;
  size_t bytes;
} moe_mlp_bwd_steps;

static inline bool moe_mlp_wants_dh(const tg_moe_mlp_bwd_args *a)
{
  return tgi_present(&a->dx) || tgi_present(&a->dgate_up) || tgi_present(&a->dgate_up_bias) ||
         tgi_present(&a->dpreactivation);
}

static inline void moe_mlp_fill_down(const tg_moe_mlp_bwd_args *a, moe_mlp_bwd_steps *s)
{
  s->back.x = s->down.x = a->dy;
  s->back.weight = s->down.weight = a->down;
  s->back.offsets = s->down.offsets = a->offsets;
  s->back.slot = s->down.slot = a->slot;
  s->back.slots_per_row = s->down.slots_per_row = a->row.shape[1];
  s->back.in_first = s->down.in_first = !a->in_first;
  s->back.y = s->down.dy = s->q;
  s->down.dweight = a->ddown;
  s->down.overwrite = a->overwrite;
}

static inline void moe_mlp_fill_up(const tg_moe_mlp_bwd_args *a, const tg_tensor *dx_rows,
                                   moe_mlp_bwd_steps *s)
{
  s->up.dy = s->dh;
  s->up.x = a->x;
  s->up.weight = a->gate_up;
  s->up.offsets = a->offsets;
  s->up.slot = a->slot;
  s->up.slots_per_row = a->row.shape[1];
  s->up.dx = *dx_rows;
  s->up.dweight = a->dgate_up;
  s->up.dbias = a->dgate_up_bias;
  s->up.in_first = a->in_first;
  s->up.overwrite = a->overwrite;
  s->sum.row = a->row;
  s->sum.y = *dx_rows;
  s->sum.out = a->dx;
  s->sum.rounding = TG_ROUNDING_ONCE;
}

static inline moe_mlp_bwd_steps moe_mlp_bwd_steps_of(const tg_moe_mlp_bwd_args *a)
{
  const int64_t rows = a->slot.shape[0], hidden = a->x.shape[1];
  const int64_t width = a->preactivation.shape[1];
  const tg_dtype dtype = a->x.dtype;
  moe_mlp_bwd_steps s;
  tg_tensor dx_rows;
  memset(&s, 0, sizeof s);
  memset(&dx_rows, 0, sizeof dx_rows);
  s.has_back = moe_mlp_wants_dh(a) || tgi_present(&a->dweights);
  s.has_down = tgi_present(&a->ddown);
  s.has_up = tgi_present(&a->dx) || tgi_present(&a->dgate_up) || tgi_present(&a->dgate_up_bias);
  if (s.has_back || s.has_down) {
    s.q = moe_mlp_take(a->workspace, &s.bytes, dtype, rows, width / 2);
  }
  if (tgi_present(&a->dpreactivation)) {
    s.dh = a->dpreactivation;
  } else if (s.has_up) {
    s.dh = moe_mlp_take(a->workspace, &s.bytes, dtype, rows, width);
  }
  if (tgi_present(&a->dx)) {
    dx_rows = moe_mlp_take(a->workspace, &s.bytes, dtype, rows, hidden);
  }
  if (tgi_present(&a->dweights)) {
    s.scores = moe_mlp_take(a->workspace, &s.bytes, TG_F32, rows, 1);
  }
  moe_mlp_fill_down(a, &s);
  moe_mlp_fill_up(a, &dx_rows, &s);
  s.back.workspace = s.down.workspace = s.up.workspace =
      a->workspace ? (char *)a->workspace + s.bytes : NULL;
  return s;
}

#endif
