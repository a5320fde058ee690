/** Linear layers of experts whose weights stay in MXFP4. */
#ifndef TEGULA_GROUPED_LINEAR_MXFP4_H
#define TEGULA_GROUPED_LINEAR_MXFP4_H

#include "context.h"
#include "gate_up.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_grouped_linear_mxfp4_pack_source {
  tg_tensor blocks, scales, packed;
} tg_grouped_linear_mxfp4_pack_source;

/** Bytes of weights packed by tg_grouped_linear_mxfp4_pack; 0 if an extent is negative or the bytes
 * are too many for a view. */
TG_API int64_t tg_grouped_linear_mxfp4_packed_bytes(int64_t experts, int64_t out, int64_t in);

/**
 * Packs the weights of experts into the layout that tg_grouped_linear_mxfp4_fwd and _bwd read. Call
 * it once, when a model is loaded. The packed bytes are a pure function of the arguments, are equal
 * on every machine, and serve every chain entry.
 *
 *   blocks  in   [experts, out, in / 32, 16]                u8  contiguous
 *   scales  in   [experts, out, in / 32]                    u8  contiguous; at most 252
 *   packed  out  [tg_grouped_linear_mxfp4_packed_bytes()]   u8  contiguous, at any address
 *
 * blocks and scales are those of tg_dequantize_mxfp4_fwd, as the files of GPT-OSS hold them: `in`
 * is a multiple of 32. A scale above 252 stands for values beyond f32, and is refused.
 *
 * Layout     A header of 64 bytes (kind of packing, version of the layout, extents), then for each
 *            expert panels of 32 rows of its weight. A panel holds the groups of 32 columns one
 *            after another: 32 scales, then four lines of 128 bytes. A line has four bytes of each
 *            row, the codes of eight consecutive columns in the order of blocks. Rows beyond the
 *            weight's are zeros. A value uses 4.25 bits.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (a scale above 252; an overlap); `error` may be
 *            NULL.
 * Source     that of tg_dequantize_mxfp4_fwd.
 */
TG_API tg_status tg_grouped_linear_mxfp4_pack(const tg_grouped_linear_mxfp4_pack_source *args,
                                              tg_error *error);

/**
 * The way back: blocks and scales, to the bit, out of packed, which is an input here. One of the
 * two may be absent.
 *
 * Errors     BAD_SHAPE (also: packed holds other extents), BAD_DTYPE, BAD_ARGUMENT (neither blocks
 *            nor scales; packed by another function or in another version of the layout; an
 *            overlap); `error` may be NULL.
 */
TG_API tg_status tg_grouped_linear_mxfp4_unpack(const tg_grouped_linear_mxfp4_pack_source *args,
                                                tg_error *error);

typedef struct tg_grouped_linear_mxfp4_fwd_args {
  tg_tensor x, weight, bias, offsets, slot, y, preactivation;
  int64_t slots_per_row;
  tg_gated_activation activation;
  float alpha, limit;
  tg_gate_up_packing packing;
  void *workspace;
  size_t workspace_bytes;
} tg_grouped_linear_mxfp4_fwd_args;

/**
 * Grouped linear layer with weights in MXFP4, forward: that of tg_grouped_linear_fwd, whose W are
 * the values that tg_dequantize_mxfp4_fwd gives.
 *
 * Expert e has the rows offsets[e] .. offsets[e + 1] - 1, as tg_moe_plan gives them.
 *
 *   z[r,o] = sum_i x[g(r),i] * W[e(r),o,i] + bias[e(r),o]    r < offsets[experts]
 *   z[r,o] = 0                                               the rows from there on
 *   y      = z, or act(gate and up of z, packed as `packing` says) with an activation
 *
 *   e(r) is the expert that has row r; g(r) = slot[r] / slots_per_row with slot, else r.
 *
 *   x              in   [x_rows, in]     f32|f16|bf16         last axis contiguous; in is a
 *                                                             multiple of 32; without slot x_rows
 *                                                             is rows
 *   weight         in   [bytes]          u8                   packed by
 *                                                             tg_grouped_linear_mxfp4_pack
 *   bias           in   [experts, out]   f32, or dtype of x   optional; last axis contiguous
 *   offsets        in   [experts + 1]    i32                  0 first, never falling, at most rows
 *   slot           in   [rows]           i32                  optional; 0 .. x_rows * slots_per_row
 *                                                             - 1 in the rows of experts; others
 *                                                             are not read
 *   y              out  [rows, out]      dtype of x, or f32   last axis contiguous; with an
 *                                                             activation [rows, out / 2]
 *   preactivation  out  [rows, out]      dtype of y           optional, with an activation; last
 *                                                             axis contiguous; z
 *   slots_per_row  how many slots a row of x has, with slot at least 1; without slot 0
 *   activation     0 is none
 *   alpha, limit   with SWIGLU_CLAMPED those of tg_swiglu_clamped_fwd, else 0
 *   packing        required with an activation, else 0
 *
 * There is at least one expert; any other extent may be 0, and an expert may have no rows.
 *
 * Math       x is not quantised, and no value of W is rounded. f32 throughout (ref: f64): in each
 *            group of 32 columns the products with twice the 4-bit values are added in two chains,
 *            of even and of odd columns; their sum, times half the scale, is added to the total
 *            group by group. Then bias, and one rounding to the dtype of y. The order depends on
 *            `in` alone. Activations are those of tg_grouped_linear_fwd.
 *            CUDA: W is widened to f32 and the sum is that of tg_grouped_linear_fwd. From compute
 *            capability 8.0 on, with x of 16 bits, if its rows (of one row the step counts, too)
 *            and the weight begin at multiples of 16 bytes: sums of groups by tensor cores,
 *            scaled and added in order; in a call of at most 64 rows there are eight such totals,
 *            each of every eighth group, added in order.
 * Workspace  tg_grouped_linear_mxfp4_fwd_workspace: some rows of x as f32 per thread; CUDA: about
 *            12 bytes an expert. With an activation and no preactivation: and z.
 *            Asynchronous; capturable; deterministic; batch-invariant: a row has the same bits
 *            whichever rows its expert and other experts have (CUDA: among calls of at most 64
 *            rows, and among those of more).
 * Errors     BAD_SHAPE (also: in not a multiple of 32; no expert; rows, or x_rows * slots_per_row,
 *            of 2^31 or more), BAD_DTYPE, BAD_ARGUMENT (weight not packed for this op, or in
 *            another version of the layout (CUDA: y is NaN, and tg_context_check returns the
 *            error); slots_per_row; activation, alpha, limit, packing; a preactivation without an
 *            activation; an offset or slot out of range: the message names it and nothing is
 *            written; an overlap; workspace missing or too small), UNSUPPORTED.
 *            CUDA: tg_context_check returns the error of an offset or slot out of range; y is NaN,
 *            for a slot its row alone.
 * Source     that of tg_grouped_linear_fwd and of tg_dequantize_mxfp4_fwd.
 */
TG_API tg_status tg_grouped_linear_mxfp4_fwd(tg_context *ctx,
                                             const tg_grouped_linear_mxfp4_fwd_args *args);

/** Workspace bytes of tg_grouped_linear_mxfp4_fwd, from shapes, dtypes, scalars and the context
 * alone. */
TG_API tg_status tg_grouped_linear_mxfp4_fwd_workspace(const tg_context *ctx,
                                                       const tg_grouped_linear_mxfp4_fwd_args *args,
                                                       size_t *bytes);

typedef struct tg_grouped_linear_mxfp4_bwd_args {
  tg_tensor dy, weight, offsets, dx, dbias;
  void *workspace;
  size_t workspace_bytes;
} tg_grouped_linear_mxfp4_bwd_args;

/**
 * Grouped linear layer with weights in MXFP4, backward. The weights are frozen: they have no
 * gradient. The sum over r is over the rows of expert e. With an activation in the forward, dy is
 * the gradient of z: tg_swiglu_bwd and tg_swiglu_clamped_bwd give it.
 *
 *   dx[r,i]     = sum_o dy[r,o] * W[e(r),o,i]    the rows from offsets[experts] on: 0
 *   dbias[e,o] += sum_r dy[r,o]
 *
 * dx has a row for each row of dy, also where several slots share a row of x: tg_moe_combine_fwd
 * adds them up. dy is not read from row offsets[experts] on. An expert without rows leaves its
 * dbias as it is.
 *
 *   dy       in   [rows, out]     dtype of dx, or f32   last axis contiguous
 *   weight   in   [bytes]         u8                    that of the forward
 *   offsets  in   [experts + 1]   i32                   those of the forward
 *   dx       out  [rows, in]      f32|f16|bf16          last axis contiguous; in is a multiple
 *                                                       of 32
 *   dbias    acc  [experts, out]  dtype of dx, or f32   optional; last axis contiguous
 *
 * Math       The sums are those of tg_grouped_linear_bwd with W in bf16 if dx is, else in f32,
 *            which hold it exactly: f32 throughout, one rounding; split by `out` alone, and by an
 *            expert's rows for dbias. A CPU's products of bf16 pairs take values of W below 2^-126
 *            as 0.
 *            CUDA, compute capability 8.0 and later, dx and dy in bf16: products of tensor cores,
 *            added up in the order of `out`, where out is a multiple of 32, rows of dy begin at
 *            multiples of 16 bytes (of one row the step counts, too) and the weight does.
 * Workspace  tg_grouped_linear_mxfp4_bwd_workspace: about 8 MB of widened weights, and packed
 *            blocks, a few MB per thread; CUDA: about 12 bytes an expert.
 *            Asynchronous; capturable; deterministic; dx is batch-invariant as the forward is, and
 *            an expert's dbias has the same bits whichever rows others have.
 * Errors     those of the forward that concern these arguments. CUDA: then dx and dbias are NaN.
 * Source     derivative of the forward.
 */
TG_API tg_status tg_grouped_linear_mxfp4_bwd(tg_context *ctx,
                                             const tg_grouped_linear_mxfp4_bwd_args *args);

/** Workspace bytes of tg_grouped_linear_mxfp4_bwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_grouped_linear_mxfp4_bwd_workspace(const tg_context *ctx,
                                                       const tg_grouped_linear_mxfp4_bwd_args *args,
                                                       size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
