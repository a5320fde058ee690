/** RMSNorm, forward and backward. */
#ifndef TEGULA_RMS_NORM_H
#define TEGULA_RMS_NORM_H

#include "context.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Where the forward rounds when x is f16 or bf16. With f32 tensors both policies give the same
 * bits.
 */
typedef enum tg_rms_norm_policy {
  TG_RMS_NORM_LLAMA = 1,   /* n = round_x(x * rstd), then y = round_y(n * w): Llama, Qwen3 */
  TG_RMS_NORM_GPT_OSS = 2, /* y = round_y((x * rstd) * w): GPT-OSS; with weight_offset 1, Gemma */
} tg_rms_norm_policy;

typedef struct tg_rms_norm_fwd_args {
  tg_tensor x, weight, y, rstd;
  float eps;
  float weight_offset;
  tg_rms_norm_policy policy;
} tg_rms_norm_fwd_args;

/**
 * RMSNorm, forward.
 *
 *   rstd[i] = 1 / sqrt(mean_j(x[i,j]^2) + eps)
 *   y[i,j]  = x[i,j] * rstd[i] * (weight_offset + weight[j])
 *
 *   x        in   [rows, cols]  f32|f16|bf16               last axis contiguous
 *   weight   in   [cols]        dtype of x, or f32
 *   y        out  [rows, cols]  dtype of x, or weight's    last axis contiguous; may alias x if
 *                                                          their dtypes are equal
 *   rstd     out  [rows]        f32                        optional; tg_rms_norm_bwd needs it
 *   eps            > 0
 *   weight_offset  finite; 0, or 1 where a model stores weight - 1
 *   policy         required
 *
 * Math       f32 accumulation (ref: f64). x * rstd, the offset weight and the product are f32
 *            operations, each rounded once and then as `policy` says. NaN and infinity affect only
 *            their own row.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (eps, weight_offset, policy; an overlap that is not
 *            listed above), UNSUPPORTED.
 * Source     Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4.
 */
TG_API tg_status tg_rms_norm_fwd(tg_context *ctx, const tg_rms_norm_fwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_rms_norm_fwd_workspace(const tg_context *ctx, const tg_rms_norm_fwd_args *args,
                                           size_t *bytes);

typedef struct tg_rms_norm_bwd_args {
  tg_tensor dy, x, weight, rstd, dx, dweight;
  float weight_offset;
  void *workspace;
  size_t workspace_bytes;
} tg_rms_norm_bwd_args;

/**
 * RMSNorm, backward.
 *
 *   n[i,j]     = x[i,j] * rstd[i]
 *   g[i,j]     = dy[i,j] * (weight_offset + weight[j])
 *   dx[i,j]    = rstd[i] * (g[i,j] - n[i,j] * mean_k(g[i,k] * n[i,k]))
 *   dweight[j] += sum_i dy[i,j] * n[i,j]
 *
 *   dy       in   [rows, cols]  dtype of x, or weight's    last axis contiguous
 *   x        in   [rows, cols]  f32|f16|bf16               last axis contiguous
 *   weight   in   [cols]        dtype of x, or f32
 *   rstd     in   [rows]        f32                        from tg_rms_norm_fwd
 *   dx       out  [rows, cols]  dtype of x                 optional; may alias dy if their dtypes
 *                                                          are equal
 *   dweight  acc  [cols]        dtype of weight, or f32    optional
 *   weight_offset  finite; that of the forward
 *
 * Math       f32 throughout, one rounding per result. Both policies have this gradient. The partial
 *            sums of dweight depend on rows alone (CUDA: on rows and cols).
 * Workspace  tg_rms_norm_bwd_workspace; 0 without dweight.  Asynchronous; capturable;
 *            deterministic; dx is batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (weight_offset; an overlap that is not listed
 *            above; workspace missing or too small), UNSUPPORTED.
 * Source     derivative of the forward.
 */
TG_API tg_status tg_rms_norm_bwd(tg_context *ctx, const tg_rms_norm_bwd_args *args);

/** Workspace bytes of tg_rms_norm_bwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_rms_norm_bwd_workspace(const tg_context *ctx, const tg_rms_norm_bwd_args *args,
                                           size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
