/** RMSNorm of each head of q and k followed by rotary position embedding, forward and backward. */
#ifndef TEGULA_QK_NORM_ROPE_H
#define TEGULA_QK_NORM_ROPE_H

#include "context.h"
#include "rope.h"
#include "rounding.h"
#include "tensor.h"
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_qk_norm_rope_fwd_args {
  tg_tensor q, k, q_weight, k_weight, cos, sin, q_out, k_out, q_rstd, k_rstd;
  float eps;
  int64_t rotary_dim;
  int64_t position_offset;
  tg_rope_pairing pairing;
  tg_rounding rounding;
} tg_qk_norm_rope_fwd_args;

/**
 * RMSNorm over head_dim, then rotary position embedding, of q and k in one pass; forward. For each
 * head x of q with q_weight, and of k with k_weight:
 *
 *   rstd  = 1 / sqrt(mean_j(x[j]^2) + eps)
 *   z[j]  = x[j] * rstd * weight[j]
 *   y     = z rotated as in tg_rope_fwd
 *
 *   q         in   [batch, seq, q_heads, head_dim]   f32|f16|bf16       last axis contiguous
 *   k         in   [batch, seq, kv_heads, head_dim]  dtype of q         last axis contiguous
 *   q_weight  in   [head_dim]                        dtype of q, or f32
 *   k_weight  in   [head_dim]                        dtype of q_weight
 *   cos, sin  in   [1 or batch, table_seq, width]    dtype of q, or f32; see rope.h
 *   q_out     out  shape and dtype of q              last axis contiguous; may alias q
 *   k_out     out  shape and dtype of k              last axis contiguous; may alias k
 *   q_rstd    out  [batch, seq, q_heads]   f32       optional; tg_qk_norm_rope_bwd needs it
 *   k_rstd    out  [batch, seq, kv_heads]  f32       optional; tg_qk_norm_rope_bwd needs it
 *   eps              > 0
 *   rotary_dim       even, 0 .. head_dim; 0: head_dim
 *   position_offset  >= 0; position_offset + seq <= table_seq
 *   pairing          required
 *   rounding         required
 *
 * q and k may be views into one packed projection: only the last axis needs stride 1, in the
 * outputs too. The backward reads the original q and k, so a training step must not overwrite them.
 *
 * Math       f32 accumulation (ref: f64). x * rstd, the product with weight, and each product and
 *            sum of the rotation are f32 operations. HF rounds each of these five results to the
 *            dtype of q, as Qwen3's attention does. ONCE rounds only the last. NaN and infinity
 *            affect only their own head.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE (also: the tables have fewer rows than seq), BAD_DTYPE, BAD_ARGUMENT (eps,
 *            rotary_dim, position_offset, pairing, rounding; an overlap that is not listed above),
 *            UNSUPPORTED.
 * Source     Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4 (RMSNorm); Su et al. 2021,
 *            arXiv:2104.09864, eq. 34 (rotation); Henry et al. 2020, arXiv:2010.04245 (norm of q
 *            and k), with the learned weight of Qwen3, arXiv:2505.09388.
 */
TG_API tg_status tg_qk_norm_rope_fwd(tg_context *ctx, const tg_qk_norm_rope_fwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_qk_norm_rope_fwd_workspace(const tg_context *ctx,
                                               const tg_qk_norm_rope_fwd_args *args, size_t *bytes);

typedef struct tg_qk_norm_rope_bwd_args {
  tg_tensor dq_out, dk_out, q, k, q_weight, k_weight, cos, sin, q_rstd, k_rstd;
  tg_tensor dq, dk, dq_weight, dk_weight;
  int64_t rotary_dim;
  int64_t position_offset;
  tg_rope_pairing pairing;
  void *workspace;
  size_t workspace_bytes;
} tg_qk_norm_rope_bwd_args;

/**
 * RMSNorm over head_dim, then rotary position embedding; backward. For each head:
 *
 *   dz[j]       = dy rotated back as in tg_rope_bwd
 *   n[j]        = x[j] * rstd
 *   g[j]        = dz[j] * weight[j]
 *   dx[j]       = rstd * (g[j] - n[j] * mean_i(g[i] * n[i]))
 *   dweight[j] += sum over all heads of dz[j] * n[j]
 *
 *   dq_out     in   shape and dtype of q              last axis contiguous
 *   dk_out     in   shape and dtype of k              last axis contiguous
 *   q          in   [batch, seq, q_heads, head_dim]   f32|f16|bf16       last axis contiguous;
 *                                                                        before the norm
 *   k          in   [batch, seq, kv_heads, head_dim]  dtype of q         last axis contiguous;
 *                                                                        before the norm
 *   q_weight   in   [head_dim]                        dtype of q, or f32
 *   k_weight   in   [head_dim]                        dtype of q_weight
 *   cos, sin   in   [1 or batch, table_seq, width]    dtype of q, or f32; see rope.h
 *   q_rstd     in   [batch, seq, q_heads]   f32       from tg_qk_norm_rope_fwd
 *   k_rstd     in   [batch, seq, kv_heads]  f32       from tg_qk_norm_rope_fwd
 *   dq         out  shape and dtype of q    optional; last axis contiguous; may alias dq_out
 *   dk         out  shape and dtype of k    optional; last axis contiguous; may alias dk_out
 *   dq_weight  acc  [head_dim]              dtype of q_weight, or f32; optional
 *   dk_weight  acc  [head_dim]              dtype of k_weight, or f32; optional
 *   rotary_dim, position_offset, pairing  those of the forward
 *
 * Math       f32 throughout, one rounding per result. Both roundings of the forward have this
 *            gradient. The partial sums of dq_weight and dk_weight depend on the number of tokens
 *            alone (CUDA: also on the extents of the heads).
 * Workspace  tg_qk_norm_rope_bwd_workspace; 0 without dq_weight and dk_weight.  Asynchronous;
 *            capturable; deterministic; dq and dk are batch-invariant.
 * Errors     BAD_SHAPE (also: the tables have fewer rows than seq), BAD_DTYPE, BAD_ARGUMENT
 *            (rotary_dim, position_offset, pairing; an overlap that is not listed above; workspace
 *            missing or too small), UNSUPPORTED.
 * Source     derivative of the forward.
 */
TG_API tg_status tg_qk_norm_rope_bwd(tg_context *ctx, const tg_qk_norm_rope_bwd_args *args);

/** Workspace bytes of tg_qk_norm_rope_bwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_qk_norm_rope_bwd_workspace(const tg_context *ctx,
                                               const tg_qk_norm_rope_bwd_args *args, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
