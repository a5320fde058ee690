/** Sum of the experts' results of each token, forward and backward. */
#ifndef TEGULA_MOE_COMBINE_H
#define TEGULA_MOE_COMBINE_H

#include "context.h"
#include "rounding.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_moe_combine_fwd_args {
  tg_tensor row, weights, y, residual, out;
  tg_rounding rounding;
} tg_moe_combine_fwd_args;

/**
 * Combine, forward.
 *
 *   out[t,i] = sum_j(weights[t,j] * y[row[t,j],i]) + residual[t,i]
 *
 * The sum is taken over j = 0, 1, .. k - 1 in this order and leaves out slots with row[t,j] = -1,
 * which tg_moe_plan gives to dropped ones.
 *
 *   row       in   [tokens, k]       i32              last axis contiguous; -1 .. rows - 1
 *   weights   in   [tokens, k]       dtype of y, f32  optional, absent: 1; last axis contiguous
 *   y         in   [rows, hidden]    f32|f16|bf16     last axis contiguous
 *   residual  in   [tokens, hidden]  dtype of y       optional; last axis contiguous
 *   out       out  [tokens, hidden]  dtype of y       last axis contiguous; may alias residual
 *   rounding  required
 *
 *   HF    each product is rounded, then the sum, then the sum with residual    transformers'
 *         grouped experts and decoder layer
 *   ONCE  one rounding of the result
 *
 * Math       f32; rounding as `rounding` says (ref: f64). Without slots the sum is 0.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE (also: k below 1), BAD_DTYPE, BAD_ARGUMENT (rounding; a row out of range:
 *            the message names its index and nothing is written; an overlap that is not listed
 *            above), UNSUPPORTED.
 *            CUDA: tg_context_check returns the error of a row out of range; the row of out is NaN.
 * Source     Shazeer et al. 2017, arXiv:1701.06538, eq. 1.
 */
TG_API tg_status tg_moe_combine_fwd(tg_context *ctx, const tg_moe_combine_fwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_moe_combine_fwd_workspace(const tg_context *ctx,
                                              const tg_moe_combine_fwd_args *args, size_t *bytes);

typedef struct tg_moe_combine_bwd_args {
  tg_tensor dout, row, slot, weights, y, dy, dweights;
} tg_moe_combine_bwd_args;

/**
 * Combine, backward. The gradient of residual is dout.
 *
 *   dy[row[t,j],i] = weights[t,j] * dout[t,i]         rows of no slot: 0
 *   dweights[t,j]  = sum_i(dout[t,i] * y[row[t,j],i])    row[t,j] = -1: 0
 *
 *   dout      in   [tokens, hidden]  f32|f16|bf16           last axis contiguous
 *   row       in   [tokens, k]       i32                    last axis contiguous; -1 .. rows - 1
 *   slot      in   [rows]            i32                    with dy: row r belongs to slot
 *                                                           slot[r] = t * k + j if row[t,j] is r,
 *                                                           else to none; 0 .. tokens * k - 1. The
 *                                                           slot and row of tg_moe_plan
 *   weights   in   [tokens, k]       dtype of dout, f32     optional, absent: 1; last axis
 *                                                           contiguous
 *   y         in   [rows, hidden]    dtype of dout          with dweights; last axis contiguous
 *   dy        out  [rows, hidden]    dtype of dout          optional; last axis contiguous
 *   dweights  out  [tokens, k]       dtype of weights       optional, only with weights; last axis
 *                                                           contiguous
 *
 * A row belongs to one slot: if two slots name it, dy has the share of slot[r] alone.
 *
 * Math       f32, one rounding of each result (ref: f64). The sum over i is an f64 sum of f32 sums
 *            of at most 1024 products each.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     those of the forward, and BAD_ARGUMENT (slot out of range; dy without slot; dweights
 *            without y or weights; neither gradient). CUDA: the row of dy, or the element of
 *            dweights, is NaN where an index is out of range.
 * Source     derivative of the forward.
 */
TG_API tg_status tg_moe_combine_bwd(tg_context *ctx, const tg_moe_combine_bwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_moe_combine_bwd_workspace(const tg_context *ctx,
                                              const tg_moe_combine_bwd_args *args, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
