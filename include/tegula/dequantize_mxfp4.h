/** Values of MXFP4: 4-bit floating-point numbers in groups of 32 that share a power of two. */
#ifndef TEGULA_DEQUANTIZE_MXFP4_H
#define TEGULA_DEQUANTIZE_MXFP4_H

#include "context.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_dequantize_mxfp4_fwd_args {
  tg_tensor blocks, scales, x;
} tg_dequantize_mxfp4_fwd_args;

/**
 * Dequantises MXFP4, as the experts of GPT-OSS are stored.
 *
 *   code(i,j) = blocks[i,g,b] & 15 for even j, blocks[i,g,b] >> 4 for odd j
 *               g = j / 32, b = j % 32 / 2
 *   x[i,j]    = fp4[code(i,j)] * 2^(scales[i,g] - 127)
 *
 *   fp4[0..7] = 0, 0.5, 1, 1.5, 2, 3, 4, 6; fp4[c + 8] = -fp4[c]
 *
 *   blocks  in   [rows, groups, 16]   u8             contiguous
 *   scales  in   [rows, groups]       u8             contiguous
 *   x       out  [rows, 32 * groups]  f32|f16|bf16   last axis contiguous
 *
 * Several matrices [out, in], one behind the other, are the rows of one: rows = experts * out.
 *
 * Math       Defined bit for bit: the exact product is rounded once to the dtype. In f32 and bf16
 *            scales of 0 to 252 are exact, denormal numbers included; a value beyond the range of
 *            the dtype is an infinity. A scale of 255, which the specification calls NaN, is 2^128,
 *            as in transformers; 0 stays 0 at any scale.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (an overlap), UNSUPPORTED.
 * Source     Open Compute Project 2023, "OCP Microscaling Formats (MX) Specification" 1.0, section
 *            5.3.3; Rouhani et al. 2023, arXiv:2310.10537.
 */
TG_API tg_status tg_dequantize_mxfp4_fwd(tg_context *ctx, const tg_dequantize_mxfp4_fwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_dequantize_mxfp4_fwd_workspace(const tg_context *ctx,
                                                   const tg_dequantize_mxfp4_fwd_args *args,
                                                   size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
