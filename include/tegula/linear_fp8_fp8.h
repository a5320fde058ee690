/** Linear layers with weights and activations in e4m3: y = x W^T + bias, forward. */
#ifndef TEGULA_LINEAR_FP8_FP8_H
#define TEGULA_LINEAR_FP8_FP8_H

#include "context.h"
#include "tensor.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_linear_fp8_fp8_fwd_args {
  tg_tensor x, x_scale, weight, weight_scale, bias, y;
  bool allow_fast_accum;
  void *workspace;
  size_t workspace_bytes;
} tg_linear_fp8_fp8_fwd_args;

/**
 * Linear layer, forward, of e4m3 codes X with a scale t for each row and e4m3 weights W with a
 * scale s for each row of W (column of y), or one for all.
 *
 *   n[i,o] = sum_k X[i,k] * W[o,k]
 *   y[i,o] = n[i,o] * t[i] * s[o] + bias[o]
 *
 *   x             in   [rows, in]   f32|f16|bf16|f8_e4m3   last axis contiguous
 *   x_scale       in   [rows]       f32                    t; of x in f8_e4m3, and only of it
 *   weight        in   [out, in]    f8_e4m3                last axis contiguous; not packed
 *   weight_scale  in   [out] | [1]  f32                    s
 *   bias          in   [out]        f32, or dtype of x (x in f8_e4m3: of y)    optional
 *   y             out  [rows, out]  dtype of x, or f32 (x in f8_e4m3: any float)
 *   allow_fast_accum                sums over all of k may stay in the tensor core
 *
 * Rows of y are contiguous along the last axis. x in another dtype than f8_e4m3 is quantised in the
 * call, row by row:
 *
 *   t = max(max_k |x[i,k]| / 448, 2^-126)    NaN if the row holds NaN or infinity
 *   X = x / t                                rounded to e4m3, ties to even
 *
 * A row of zeros has X = 0. NaN or infinity in a row of x, NaN in its codes or its scale make that
 * row of y NaN and no other; NaN in a row of W or in its scale makes that column of y NaN. Any
 * extent may be 0; with in = 0 the sum is 0.
 *
 * Math       t and X come of f32 operations, each rounded once: X has the same bits on every entry.
 *            Products of codes are exact, n is an f32 sum. n * t, its product with s, and the sum
 *            with bias are each rounded to f32, and the result to y's dtype.
 *            On Hopper, if rows of x in f8_e4m3, of W and of y begin at multiples of 16 bytes and
 *            `in` is not 0: tensor cores add up 128 columns in four steps of 32; sums of 128 are
 *            added outside of them, in order, in f32. A step keeps some 14 bits of its largest
 *            term: n is off by about 1e-4 of the norm of its terms. Of 1 to 64 rows k is cut into
 *            up to 8 parts, by W's shape alone, whose sums are added in order.
 *            allow_fast_accum: of more rows than 64 one sum over k stays in the tensor core; n is
 *            off by about 5e-4 at 1024 columns, and more at more.
 *            Elsewhere codes are widened to bf16, exactly, and n is summed as tg_linear_fwd does.
 * Workspace  tg_linear_fp8_fp8_fwd_workspace: x and up to 2048 (CPU: 1024) rows of W in bf16, and
 *            n of these in f32, on Hopper too, for calls that its kernels do not take. CUDA also X
 *            and t, 1 byte per value of x.  Asynchronous; capturable; deterministic;
 *            batch-invariant (on Hopper among 1 to 64 rows, and among more).
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (x_scale beside x that is not in f8_e4m3, or none
 *            beside x that is; an overlap; workspace missing or too small), UNSUPPORTED.
 * Source     Micikevicius et al. 2022, arXiv:2209.05433 (e4m3); DeepSeek-AI 2024, arXiv:2412.19437,
 *            section 3.3.2 (sums of 128 columns outside of the tensor core).
 */
TG_API tg_status tg_linear_fp8_fp8_fwd(tg_context *ctx, const tg_linear_fp8_fp8_fwd_args *args);

/** Workspace bytes of tg_linear_fp8_fp8_fwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_linear_fp8_fp8_fwd_workspace(const tg_context *ctx,
                                                 const tg_linear_fp8_fp8_fwd_args *args,
                                                 size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
