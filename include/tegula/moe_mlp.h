/** The feed-forward blocks of a mixture of experts, forward and backward. */
#ifndef TEGULA_MOE_MLP_H
#define TEGULA_MOE_MLP_H

#include "context.h"
#include "gate_up.h"
#include "tensor.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_moe_mlp_fwd_args {
  tg_tensor x, weights, offsets, slot, row, gate_up, gate_up_bias, down, down_bias, residual, y,
      preactivation;
  tg_gated_activation activation;
  float alpha, limit;
  tg_gate_up_packing packing;
  bool in_first;
  void *workspace;
  size_t workspace_bytes;
} tg_moe_mlp_fwd_args;

/**
 * Experts, forward. Row r belongs to expert e, whose rows are offsets[e] .. offsets[e + 1] - 1, and
 * to token t = slot[r] / k, as tg_moe_plan gives them; c counts the columns of the experts' width.
 *
 *   h[r,c] = sum_i x[t,i] * gate_up[e,c,i] + gate_up_bias[e,c]       c < 2 * inter
 *   a[r,c] = act(gate and up of h[r], packed as `packing` says)      c < inter
 *   z[r,i] = sum_c a[r,c] * down[e,i,c] + down_bias[e,i]
 *   y[t,i] = sum_j weights[t,j] * z[row[t,j],i] + residual[t,i]
 *                                  j = 0 .. k - 1 in this order, but those with row[t,j] = -1
 *
 * From row offsets[experts] on, h, a and z are 0.
 *
 *   x              in   [tokens, hidden]              f32|f16|bf16       last axis contiguous
 *   weights        in   [tokens, k]                   dtype of x, f32    last axis contiguous
 *   offsets        in   [experts + 1]                 i32                0 first, never falling, at
 *                                                                        most tokens * k
 *   slot           in   [tokens * k]                  i32                0 .. tokens * k - 1 in the
 *                                                                        rows of experts; others
 *                                                                        are not read
 *   row            in   [tokens, k]                   i32                -1 .. tokens * k - 1
 *   gate_up        in   [experts, 2 * inter, hidden]  f32, or dtype of x (f32 x: any)
 *                                                                        last axis contiguous
 *   gate_up_bias   in   [experts, 2 * inter]          dtype of gate_up, or f32
 *                                                                        optional; last axis
 *                                                                        contiguous
 *   down           in   [experts, hidden, inter]      dtype of gate_up   last axis contiguous
 *   down_bias      in   [experts, hidden]             dtype of gate_up, or f32
 *                                                                        optional; last axis
 *                                                                        contiguous
 *   residual       in   [tokens, hidden]              dtype of x         optional; last axis
 *                                                                        contiguous
 *   y              out  [tokens, hidden]              dtype of x         last axis contiguous; may
 *                                                                        alias residual
 *   preactivation  out  [tokens * k, 2 * inter]       dtype of x         optional; last axis
 *                                                                        contiguous; h, for
 *                                                                        tg_moe_mlp_bwd
 *   activation     required; SWIGLU or SWIGLU_CLAMPED
 *   alpha, limit   with SWIGLU_CLAMPED those of tg_swiglu_clamped_fwd, else 0
 *   packing        required; how h and the rows of gate_up hold gate and up
 *   in_first       true: gate_up is [experts, hidden, 2 * inter] and down [experts, inter, hidden]
 *                  instead, which are gate_up[e,i,c] and down[e,c,i] in the formulas (GPT-OSS)
 *
 * There is at least one expert and k is at least 1; other extents may be 0, and an expert may have
 * no rows.
 *
 * Math       f32 (ref: f64). h, a, z and y are rounded once each to the dtype of x; the sums are
 *            those of tg_grouped_linear_fwd, and act is that of tg_swiglu_fwd and
 *            tg_swiglu_clamped_fwd with rounding ONCE.
 * Workspace  tg_moe_mlp_fwd_workspace: a and z, h where preactivation is absent, and the workspace
 *            of the products.
 *            Asynchronous; capturable; deterministic; batch-invariant: a token has the same y
 *            whichever others there are.
 * Errors     BAD_SHAPE (also: no expert, k below 1; tokens * k of 2^31 or more), BAD_DTYPE,
 *            BAD_ARGUMENT (activation, alpha, limit, packing; an offset, slot or row out of range:
 *            the message names it and nothing is written; an overlap; workspace missing or too
 *            small), UNSUPPORTED.
 *            CUDA: tg_context_check returns the error of an index out of range; y is NaN, for a
 *            slot or row its token alone.
 * Source     Shazeer et al. 2017, arXiv:1701.06538; Guo et al. 2025, arXiv:2512.14080 (what is
 *            kept).
 */
TG_API tg_status tg_moe_mlp_fwd(tg_context *ctx, const tg_moe_mlp_fwd_args *args);

/** Workspace bytes of tg_moe_mlp_fwd, from shapes, dtypes, scalars and the context alone. */
TG_API tg_status tg_moe_mlp_fwd_workspace(const tg_context *ctx, const tg_moe_mlp_fwd_args *args,
                                          size_t *bytes);

typedef struct tg_moe_mlp_bwd_args {
  tg_tensor dy, x, weights, offsets, slot, row, gate_up, down, down_bias, preactivation, dx,
      dweights, dgate_up, dgate_up_bias, ddown, ddown_bias, dpreactivation;
  tg_gated_activation activation;
  float alpha, limit;
  tg_gate_up_packing packing;
  bool in_first, overwrite;
  void *workspace;
  size_t workspace_bytes;
} tg_moe_mlp_bwd_args;

/**
 * Experts, backward. It reads x and the pre-activation h of the forward, from which it computes a
 * again. w is the weight of row r, weights[t,j] with slot[r] = t * k + j. The sums over r are over
 * the rows of expert e.
 *
 *   q[r,c]              = sum_i dy[t,i] * down[e,i,c]
 *   dh[r]               = w * q[r] through act'(h[r]), as in tg_swiglu(_clamped)_bwd
 *   dx[t,i]             = sum_j dxr[row[t,j],i],  dxr[r,i] = sum_c dh[r,c] * gate_up[e,c,i]
 *   dweights[t,j]       = sum_c q[r,c] * a[r,c] + sum_i dy[t,i] * down_bias[e,i]    r = row[t,j];
 *                         0 where it is -1 or a row of no expert
 *   dgate_up[e,c,i]    += sum_r dh[r,c] * x[t,i]
 *   dgate_up_bias[e,c] += sum_r dh[r,c]
 *   ddown[e,i,c]       += sum_r dy[t,i] * (w * a[r,c])
 *   ddown_bias[e,i]    += sum_r w * dy[t,i]
 *
 * An expert without rows leaves its gradients as they are (overwrite: makes them 0). An absent
 * gradient is not computed: frozen experts cost two products instead of four.
 *
 * The last axis of every tensor is contiguous.
 *
 *   dy              in   [tokens, hidden]              dtype of x
 *   x               in   [tokens, hidden]              f32|f16|bf16          read for dgate_up
 *   weights         in   [tokens, k]                   dtype of x, f32
 *   offsets         in   [experts + 1]                 i32                   that of the forward
 *   slot            in   [tokens * k]                  i32                   that of the forward
 *   row             in   [tokens, k]                   i32                   that of the forward
 *   gate_up         in   [experts, 2 * inter, hidden]  f32, or dtype of x    read for dx; any dtype
 *                                                                            with f32 x
 *   down            in   [experts, hidden, inter]      dtype of gate_up
 *   down_bias       in   [experts, hidden]             that of gate_up, f32  optional, that of the
 *                                                                            forward; read for
 *                                                                            dweights
 *   preactivation   in   [tokens * k, 2 * inter]       dtype of x            h of the forward
 *   dx              out  [tokens, hidden]              dtype of x            optional
 *   dweights        out  [tokens, k]                   that of weights, f32  optional
 *   dgate_up        acc  [experts, 2 * inter, hidden]  that of gate_up, f32  optional
 *   dgate_up_bias   acc  [experts, 2 * inter]          that of gate_up, f32  optional
 *   ddown           acc  [experts, hidden, inter]      that of gate_up, f32  optional
 *   ddown_bias      acc  [experts, hidden]             that of gate_up, f32  optional
 *   dpreactivation  out  [tokens * k, 2 * inter]       dtype of x            optional; dh, 0 in the
 *                                                                            rows of no expert; may
 *                                                                            alias preactivation
 *   activation      required; that of the forward
 *   alpha, limit    those of the forward
 *   packing         required; that of the forward
 *   in_first        that of the forward
 *   overwrite       true: the gradients of parameters are overwritten and their old content is not
 *                   read
 *
 * Math       f32 (ref: f64); q, w * a, dh and dxr are rounded once each to the dtype of x, as each
 *            result is. The sums are those of tg_grouped_linear_bwd, ddown_bias as its dbias. The
 *            sums of dweights over c and i are f64 sums of f32 sums of at most 1024 products each.
 * Workspace  tg_moe_mlp_bwd_workspace: q, which w * a replaces; dh where dpreactivation is absent;
 *            dxr with dx; 4 bytes a row; and the workspace of the products. Compute capability 9.0:
 *            and a row of dy for each row.
 *            Asynchronous; capturable; deterministic; dx, dweights and dpreactivation are
 *            batch-invariant, and an expert's gradients have the same bits whichever rows others
 *            have.
 * Errors     those of the forward. CUDA: for an offset out of range all gradients are NaN, for a
 *            slot or row those that depend on its row.
 * Source     derivative of the forward; Guo et al. 2025, arXiv:2512.14080, section 3.
 */
TG_API tg_status tg_moe_mlp_bwd(tg_context *ctx, const tg_moe_mlp_bwd_args *args);

/** Workspace bytes of tg_moe_mlp_bwd, from shapes, dtypes, scalars and the context alone. */
TG_API tg_status tg_moe_mlp_bwd_workspace(const tg_context *ctx, const tg_moe_mlp_bwd_args *args,
                                          size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
