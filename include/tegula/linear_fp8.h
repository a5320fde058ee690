/** Linear layers with 8-bit floating-point weights: y = x W^T + bias, forward. */
#ifndef TEGULA_LINEAR_FP8_H
#define TEGULA_LINEAR_FP8_H

#include "context.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of a weight [out, in] packed by tg_linear_fp8_pack; 0 for extents that no view has. */
TG_API int64_t tg_linear_fp8_packed_bytes(int64_t out, int64_t in);

typedef struct tg_linear_fp8_pack_source {
  tg_tensor weight, scale, packed;
} tg_linear_fp8_pack_source;

/**
 * Brings a weight into the form that tg_linear_fp8_fwd reads: once, when a model is loaded. A pure
 * function of its arguments; the bytes are the same on every machine and serve every chain entry.
 *
 *   weight  in   [out, in]    f8_e4m3   last axis contiguous
 *   scale   in   [1, 1] | [out, ceil(in / 128)]   f32   contiguous; of the whole weight, or of 128
 *                                       columns of a row
 *   packed  out  [tg_linear_fp8_packed_bytes(out, in)]  u8   contiguous, at any address
 *
 * Layout     A header of 64 bytes (what is packed, with its extents), then panels of 32 rows of W.
 *            A panel holds its blocks of 128 columns one after the other: 32 scales, f32, then for
 *            every column a line of 32 values, one a row. Rows beyond the weight's are 0 with scale
 *            0. A scale for the whole weight is repeated.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (overlap); `error` may be NULL.
 */
TG_API tg_status tg_linear_fp8_pack(const tg_linear_fp8_pack_source *args, tg_error *error);

typedef struct tg_linear_fp8_fwd_args {
  tg_tensor x, weight, bias, y;
  void *workspace;
  size_t workspace_bytes;
} tg_linear_fp8_fwd_args;

/**
 * Linear layer with e4m3 weights W in blocks b of 128 columns and their scales s, forward.
 *
 *   y[i,o] = sum_b s[o,b] * (sum_(k in b) x[i,k] * W[o,k]) + bias[o]
 *
 *   x       in   [rows, in]   f32|f16|bf16           last axis contiguous
 *   weight  in   [bytes]      u8                     packed by tg_linear_fp8_pack
 *   bias    in   [out]        f32, or dtype of x     optional
 *   y       out  [rows, out]  dtype of x, or f32     last axis contiguous
 *
 * Any extent may be 0; with in = 0 the sum is 0. Activations in f8 are not taken: no CPU computes
 * with them, so the caller's widened copy costs nothing that this op would spare.
 *
 * Math       Weights are widened exactly. f32 throughout: a block is one chain of fused
 *            multiply-adds in the order of k, blocks are added in order, and the result is rounded
 *            once to y's dtype. A weight of NaN (0x7f, 0xff) gives NaN. CUDA: a block is four
 *            chains of 32, added as (0 + 1) + (2 + 3); blocks are dealt to 16 sums, which are then
 *            added in order.
 * Workspace  tg_linear_fp8_fwd_workspace: x widened and packed, about 4.2 bytes a value; CUDA:
 *            none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (weight not packed for this op (CUDA: y is NaN, and
 *            tg_context_check tells), overlap, workspace missing or too small), UNSUPPORTED.
 * Source     Micikevicius et al. 2022, arXiv:2209.05433 (e4m3); DeepSeek-AI 2024,
 *            arXiv:2412.19437, section 3.3.2 (scales of blocks of 128).
 */
TG_API tg_status tg_linear_fp8_fwd(tg_context *ctx, const tg_linear_fp8_fwd_args *args);

/** Workspace bytes of tg_linear_fp8_fwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_linear_fp8_fwd_workspace(const tg_context *ctx,
                                             const tg_linear_fp8_fwd_args *args, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
