/** Linear layers with 8-bit floating-point weights: y = x W^T + bias, forward. */
#ifndef TEGULA_LINEAR_FP8_H
#define TEGULA_LINEAR_FP8_H

#include "context.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of a weight [out, in] packed by tg_linear_fp8_pack; 0 for invalid extents. */
TG_API int64_t tg_linear_fp8_packed_bytes(int64_t out, int64_t in);

typedef struct tg_linear_fp8_pack_source {
  tg_tensor weight, scale, packed;
} tg_linear_fp8_pack_source;

/**
 * Packs a weight into the layout that tg_linear_fp8_fwd reads. Call it once, when a model is
 * loaded. The packed bytes are a pure function of the arguments, are equal on every machine, and
 * serve every chain entry.
 *
 *   weight  in   [out, in]    f8_e4m3   last axis contiguous
 *   scale   in   [1, 1] | [out, 1] | [out, ceil(in / 128)]   f32   contiguous; one for the whole
 *                                       weight, for each row, or for each 128 columns of a row
 *   packed  out  [tg_linear_fp8_packed_bytes(out, in)]  u8   contiguous, at any address
 *
 * Layout     A header of 64 bytes (kind of packing, version and extents), then panels of 32 rows of
 *            W. A panel holds its blocks of 128 columns one after another: 32 f32 scales, then for
 *            every column a line of 32 values, one per row. Rows beyond the weight's are 0 with
 *            scale 0. A scale of the whole weight, or of a row, is repeated; that of a block with a
 *            NaN (0x7f, 0xff) is NaN.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (an overlap); `error` may be NULL.
 * Source     that of tg_linear_fp8_fwd.
 */
TG_API tg_status tg_linear_fp8_pack(const tg_linear_fp8_pack_source *args, tg_error *error);

typedef struct tg_linear_fp8_fwd_args {
  tg_tensor x, weight, bias, y;
  void *workspace;
  size_t workspace_bytes;
} tg_linear_fp8_fwd_args;

/**
 * Linear layer, forward, with e4m3 weights W in blocks b of 128 columns and a scale s per block.
 *
 *   y[i,o] = sum_b s[o,b] * (sum_(k in b) x[i,k] * W[o,k]) + bias[o]
 *
 *   x       in   [rows, in]   f32|f16|bf16           last axis contiguous
 *   weight  in   [bytes]      u8                     packed by tg_linear_fp8_pack
 *   bias    in   [out]        f32, or dtype of x     optional
 *   y       out  [rows, out]  dtype of x, or f32     last axis contiguous
 *
 * Any extent may be 0; with in = 0 the sum is 0. x may not be f8: no CPU computes with f8 values,
 * so a copy widened by the caller costs no more than widening them here.
 *
 * Math       Weights are widened exactly; f32 throughout (ref: f64). A block is one chain of fused
 *            multiply-adds in the order of k. Blocks are added in order, and the result is rounded
 *            once to y's dtype. A NaN weight (0x7f, 0xff) gives NaN.
 *            CUDA: a block is four chains of 32, added as (0 + 1) + (2 + 3); blocks are distributed
 *            over 16 sums, which are then added in order. 16-bit x from compute capability 8.0 on,
 *            if its rows and the weight begin at multiples of 16 bytes and `in` is a multiple of 8:
 *            tensor cores add up a block's products, which are exact. Blocks are cut into
 *            eight runs of one length but for the last ones; a run is a chain of its blocks
 *            in order, the first four runs are added in order, so are the others, then the
 *            two.
 *            From 193 rows of bf16 on, with y in bf16, a context that tg_context_prepare gave
 *            cublasLt multiplies with W * s, rounded to bf16.
 * Workspace  tg_linear_fp8_fwd_workspace: x widened and packed, about 4.2 bytes per value; CUDA:
 *            none, or W in bf16 where it goes to cublasLt; compute capability 9.0, 16-bit x of more
 *            than 16 rows: 2 bytes per value, with columns padded to whole 128 and rows to whole
 *            64, if that is more.  Asynchronous; capturable; deterministic; batch-invariant (not
 *            through cublasLt).
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (weight not packed for this op (CUDA: y is NaN, and
 *            tg_context_check returns the error); an overlap; workspace missing or too small),
 *            UNSUPPORTED.
 * Source     Micikevicius et al. 2022, arXiv:2209.05433 (e4m3); DeepSeek-AI 2024, arXiv:2412.19437,
 *            section 3.3.2 (one scale for each block of 128).
 */
TG_API tg_status tg_linear_fp8_fwd(tg_context *ctx, const tg_linear_fp8_fwd_args *args);

/** Workspace bytes of tg_linear_fp8_fwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_linear_fp8_fwd_workspace(const tg_context *ctx,
                                             const tg_linear_fp8_fwd_args *args, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
