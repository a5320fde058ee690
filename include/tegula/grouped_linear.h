/** Linear layers of experts: each row is multiplied by the weight of its expert. */
#ifndef TEGULA_GROUPED_LINEAR_H
#define TEGULA_GROUPED_LINEAR_H

#include "context.h"
#include "gate_up.h"
#include "tensor.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_grouped_linear_fwd_args {
  tg_tensor x, weight, bias, offsets, slot, y, preactivation;
  int64_t slots_per_row;
  bool in_first;
  tg_gated_activation activation;
  float alpha, limit;
  tg_gate_up_packing packing;
  void *workspace;
  size_t workspace_bytes;
} tg_grouped_linear_fwd_args;

/**
 * Grouped linear layer, forward.
 *
 * Expert e has the rows offsets[e] .. offsets[e + 1] - 1, as tg_moe_plan gives them.
 *
 *   z[r,o] = sum_i x[g(r),i] * weight[e(r),o,i] + bias[e(r),o]    r < offsets[experts]
 *   z[r,o] = 0                                                    the rows from there on
 *   y      = z, or act(gate and up of z, packed as `packing` says) with an activation
 *
 *   e(r) is the expert that has row r; g(r) = slot[r] / slots_per_row with slot, else r.
 *
 *   x              in   [x_rows, in]        f32|f16|bf16         last axis contiguous; without slot
 *                                                                x_rows is rows
 *   weight         in   [experts, out, in]  f32, or dtype of x   last axis contiguous; with f32 x:
 *                                                                any
 *   bias           in   [experts, out]      dtype of weight,     optional; last axis contiguous
 *                                           or f32
 *   offsets        in   [experts + 1]       i32                  0 first, never falling, at most
 *                                                                rows
 *   slot           in   [rows]              i32                  optional; 0 .. x_rows *
 *                                                                slots_per_row - 1 in the rows of
 *                                                                experts; others are not read
 *   y              out  [rows, out]         dtype of x, or f32   last axis contiguous; with an
 *                                                                activation [rows, out / 2]
 *   preactivation  out  [rows, out]         dtype of y           optional, with an activation; last
 *                                                                axis contiguous; z
 *   slots_per_row  how many slots a row of x has, with slot at least 1; without slot 0
 *   in_first       true: weight is [experts, in, out] instead, which is weight[e,i,o] in the
 *                  formula
 *   activation     0 is none; else out is even
 *   alpha, limit   with SWIGLU_CLAMPED those of tg_swiglu_clamped_fwd, else 0
 *   packing        required with an activation, else 0
 *
 * There is at least one expert; any other extent may be 0, and an expert may have no rows.
 *
 * Math       f32 throughout (ref: f64), one rounding per result. The sum over i is that of
 *            tg_linear_fwd: split by `in` alone. Before an activation, z is rounded to the dtype of
 *            y; act is that of tg_swiglu_fwd and tg_swiglu_clamped_fwd with rounding ONCE. Compute
 *            capability 8.0 and later: 16-bit x and weight of one dtype are multiplied by tensor
 *            cores, with one sum over all of i.
 * Workspace  tg_grouped_linear_fwd_workspace: packed blocks, a few MB per thread; CUDA: about 12
 *            bytes an expert. With an activation and no preactivation: and z, but where tensor
 *            cores multiply and y has the dtype of x (compute capability 9.0: unless weight is
 *            in_first and packing HALVES, which needs z). Compute capability 9.0: with slot a row
 *            of x for each row.
 *            Asynchronous; capturable; deterministic; batch-invariant: a row has the same bits
 *            whichever rows its expert and other experts have.
 * Errors     BAD_SHAPE (also: no expert; rows, or x_rows * slots_per_row, of 2^31 or more),
 *            BAD_DTYPE, BAD_ARGUMENT (slots_per_row; activation, alpha, limit, packing; a
 *            preactivation without an activation; an offset or slot out of range: the message names
 *            it and nothing is written; an overlap; workspace missing or too small), UNSUPPORTED.
 *            CUDA: tg_context_check returns the error of an offset or slot out of range; y is NaN,
 *            for a slot its row alone.
 * Source     Gale et al. 2022, arXiv:2211.15841, section 5.
 */
TG_API tg_status tg_grouped_linear_fwd(tg_context *ctx, const tg_grouped_linear_fwd_args *args);

/** Workspace bytes of tg_grouped_linear_fwd, from shapes, dtypes, scalars and the context alone. */
TG_API tg_status tg_grouped_linear_fwd_workspace(const tg_context *ctx,
                                                 const tg_grouped_linear_fwd_args *args,
                                                 size_t *bytes);

typedef struct tg_grouped_linear_bwd_args {
  tg_tensor dy, x, weight, offsets, slot, dx, dweight, dbias;
  int64_t slots_per_row;
  bool in_first, overwrite;
  void *workspace;
  size_t workspace_bytes;
} tg_grouped_linear_bwd_args;

/**
 * Grouped linear layer, backward. The sums over r are over the rows of expert e. With an activation
 * in the forward, dy is the gradient of z: tg_swiglu_bwd and tg_swiglu_clamped_bwd give it.
 *
 *   dx[r,i]         = sum_o dy[r,o] * weight[e(r),o,i]    the rows from offsets[experts] on: 0
 *   dweight[e,o,i] += sum_r dy[r,o] * x[g(r),i]
 *   dbias[e,o]     += sum_r dy[r,o]
 *
 * dx has a row for each row of dy, also where several slots share a row of x: tg_moe_combine_fwd
 * adds them up. dy is not read from row offsets[experts] on. An expert without rows leaves its
 * dweight and dbias as they are (overwrite: makes them 0).
 *
 *   dy             in   [rows, out]         dtype of x, or f32   last axis contiguous
 *   x              in   [x_rows, in]        f32|f16|bf16         last axis contiguous; read for
 *                                                                dweight
 *   weight         in   [experts, out, in]  f32, or dtype of x (f32 x: any)
 *                                                                last axis contiguous; read for dx
 *   offsets        in   [experts + 1]       i32                  those of the forward
 *   slot           in   [rows]              i32                  that of the forward, if it had one
 *   dx             out  [rows, in]          dtype of x           optional; last axis contiguous
 *   dweight        acc  [experts, out, in]  dtype of weight,     optional; last axis contiguous
 *                                           or f32
 *   dbias          acc  [experts, out]      dtype of weight,     optional; last axis contiguous
 *                                           or f32
 *   slots_per_row  that of the forward
 *   in_first       that of the forward, for weight and dweight
 *   overwrite      true: dweight and dbias are overwritten and their old content is not read
 *
 * Math       f32 throughout, one rounding per result. The sums are those of tg_linear_bwd for the
 *            rows of each expert: split by `out` for dx and by an expert's rows for dweight. dbias
 *            sums groups of 64 rows, then the groups in order. CUDA: of each group eight sums, of
 *            every eighth row each; sum i of all groups is added up in the order of the groups; in
 *            the end the eight totals are added in order. Compute capability 8.0 and later: dx of
 *            16-bit dy and weight of one dtype, and dweight of such dy and x, by tensor cores as
 *            the forward; dweight may be f32.
 * Workspace  tg_grouped_linear_bwd_workspace: as in the forward.  Asynchronous; capturable;
 *            deterministic; dx is batch-invariant as the forward is, and an expert's dweight and
 *            dbias have the same bits whichever rows others have.
 * Errors     those of the forward. CUDA: for an offset out of range dx, dweight and dbias are NaN,
 *            for a slot dweight of its expert.
 * Source     derivative of the forward.
 */
TG_API tg_status tg_grouped_linear_bwd(tg_context *ctx, const tg_grouped_linear_bwd_args *args);

/** Workspace bytes of tg_grouped_linear_bwd, from shapes, dtypes, scalars and the context alone. */
TG_API tg_status tg_grouped_linear_bwd_workspace(const tg_context *ctx,
                                                 const tg_grouped_linear_bwd_args *args,
                                                 size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
