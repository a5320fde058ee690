/** Attention in three separate steps (scores, softmax, product), for teaching and comparison. */
#ifndef TEGULA_ATTENTION_NAIVE_H
#define TEGULA_ATTENTION_NAIVE_H

#include "context.h"
#include "tensor.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_attention_naive_fwd_args {
  tg_tensor q, k, v, out, probabilities;
  float scale;
  bool causal;
  void *workspace;
  size_t workspace_bytes;
} tg_attention_naive_fwd_args;

/**
 * Attention in its materialised form, forward.
 *
 *   s[i,j]   = scale * sum_c q[i,c] * k[j,c]
 *   p[i,j]   = e^s[i,j] / sum_j' e^s[i,j'] over the visible j; 0 for the others
 *   out[i]   = sum_j p[i,j] * v[j]
 *
 * Query i sees every key. With `causal` it sees the keys j <= keys - nq + i: the last query is
 * aligned with the last key. Query head h reads kv head h / (q_heads / kv_heads).
 *
 *   q              in   [batch, nq, q_heads, head_dim]     f32|f16|bf16  last axis contiguous
 *   k              in   [batch, keys, kv_heads, head_dim]  dtype of q    last axis contiguous
 *   v              in   [batch, keys, kv_heads, v_dim]     dtype of q    last axis contiguous
 *   out            out  [batch, nq, q_heads, v_dim]        dtype of q    last axis contiguous
 *   probabilities  out  [batch, q_heads, nq, keys]         dtype of q    last axis contiguous
 *                                         optional; tg_attention_naive_bwd needs them
 *   scale  > 0
 *
 * q_heads is a multiple of kv_heads. q, k and v may be views into one packed tensor. A query that
 * sees no key, or whose scores are all -infinity, has p = 0 and out = 0.
 *
 * Math       f32, with one rounding of probabilities and of out (ref: f64). bf16 products of q and
 *            k are those of tg_linear_fwd. The sum of out runs over all keys: a hidden key adds 0 *
 *            v, which is NaN where v is infinite or NaN.
 * Workspace  tg_attention_naive_fwd_workspace: the scores of one head, [nq, keys] in f32, and some
 *            MB per thread. CUDA: the scores of as many kv heads as fit in 256 MiB, but of at least
 *            one, with rows padded to whole 32 bytes.  Asynchronous; capturable; deterministic;
 *            batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (scale; out or probabilities overlap an input;
 *            workspace missing or too small), UNSUPPORTED.
 * Source     Vaswani et al. 2017, arXiv:1706.03762, eq. 1; Ainslie et al. 2023, arXiv:2305.13245
 *            (shared kv heads).
 */
TG_API tg_status tg_attention_naive_fwd(tg_context *ctx, const tg_attention_naive_fwd_args *args);

/** Workspace bytes of tg_attention_naive_fwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_attention_naive_fwd_workspace(const tg_context *ctx,
                                                  const tg_attention_naive_fwd_args *args,
                                                  size_t *bytes);

typedef struct tg_attention_naive_bwd_args {
  tg_tensor dout, q, k, v, probabilities;
  tg_tensor dq, dk, dv;
  float scale;
  void *workspace;
  size_t workspace_bytes;
} tg_attention_naive_bwd_args;

/**
 * Attention in its materialised form, backward.
 *
 *   dp[i,j]  = sum_c dout[i,c] * v[j,c]
 *   ds[i,j]  = scale * p[i,j] * (dp[i,j] - sum_j' p[i,j'] * dp[i,j'])
 *   dq[i]    = sum_j ds[i,j] * k[j]
 *   dk[j]    = sum_i ds[i,j] * q[i]
 *   dv[j]    = sum_i p[i,j] * dout[i]
 *
 * Sums over i run over the queries of all heads that share the kv head. There is no `causal`: p is
 * 0 for hidden keys.
 *
 *   dout           in   [batch, nq, q_heads, v_dim]        dtype of q    last axis contiguous
 *   q              in   [batch, nq, q_heads, head_dim]     f32|f16|bf16  last axis contiguous
 *   k              in   [batch, keys, kv_heads, head_dim]  dtype of q    last axis contiguous
 *   v              in   [batch, keys, kv_heads, v_dim]     dtype of q    last axis contiguous
 *   probabilities  in   [batch, q_heads, nq, keys]         dtype of q    last axis contiguous; p
 *                                                          from tg_attention_naive_fwd
 *   dq             out  shape and dtype of q    optional; last axis contiguous
 *   dk             out  shape and dtype of k    optional; last axis contiguous
 *   dv             out  shape and dtype of v    optional; last axis contiguous
 *   scale          that of the forward
 *
 * dq, dk and dv may be views into one packed tensor. They are written whole.
 *
 * Math       f32, one rounding per result (ref: f64). bf16 products of dout with v and of p with
 *            dout are those of tg_linear_fwd. All pairs count: where p is 0, infinity or NaN in the
 *            query or key still gives NaN.
 * Workspace  tg_attention_naive_bwd_workspace: ds of one head, [nq, keys] in f32; dk and dv of one
 *            kv head in f32; and some MB per thread. CUDA: scores as in the forward, and f32 sums
 *            of dk or dv of their kv heads if dk and dv are 16-bit and shared by several query
 *            heads.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (scale; dq, dk or dv overlaps an input; workspace
 *            missing or too small), UNSUPPORTED.
 * Source     Dao et al. 2022, arXiv:2205.14135, appendix B.2.
 */
TG_API tg_status tg_attention_naive_bwd(tg_context *ctx, const tg_attention_naive_bwd_args *args);

/** Workspace bytes of tg_attention_naive_bwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_attention_naive_bwd_workspace(const tg_context *ctx,
                                                  const tg_attention_naive_bwd_args *args,
                                                  size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
