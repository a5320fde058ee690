/** Scaled dot-product attention, forward and backward. */
#ifndef TEGULA_ATTENTION_H
#define TEGULA_ATTENTION_H

#include "context.h"
#include "tensor.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Which keys a query sees: one set of rules for both directions.
 *
 * Sequences  A call has `batch` sequences. Sequence b has nq queries and a key extent of `extent`
 *            rows. The layouts are:
 *              q [batch, nq, ..]                  nq is q's second extent
 *              q [1, total_q, ..], cu_seqlens_q   rows cu_seqlens_q[b] .. cu_seqlens_q[b+1] - 1
 *              k [batch, extent, ..]              v likewise
 *              k [1, total_k, ..], cu_seqlens_k   rows cu_seqlens_k[b] .. cu_seqlens_k[b+1] - 1
 *              k [num_blocks, block_size, ..], block_table [batch, max_blocks]: paged keys. Row r
 *                is row r % block_size of block block_table[b, r / block_size]; extent is
 *                max_blocks * block_size. Forward only.
 *            The layouts of q and k are independent. cu_seqlens starts at 0, never decreases, and
 *            ends at the number of rows. A sequence may be empty.
 * Keys       The keys are rows first .. first + count - 1 of the extent. first is key_start[b]
 *            (absent: 0) and count is key_count[b] (absent: extent - first). Rows outside that
 *            range, such as padding and the unused end of a cache, are never read.
 * Position   Query i has position p = query_start[b] + i, a row of the extent. Without query_start
 *            the last query is aligned with the last key: p = first + count - nq + i ("bottom
 *            right"). query_start may be negative or past the end.
 * Visible    Query i sees key row j if j is one of the keys and
 *              causal      j <= p
 *              window > 0  |p - j| < window; with causal: the last `window` rows up to p
 * Heads      q_heads is a multiple of kv_heads. Query head h reads kv head
 *            h / (q_heads / kv_heads).
 */

typedef struct tg_attention_fwd_args {
  tg_tensor q, k, v, out, lse;
  tg_tensor sinks;
  tg_tensor cu_seqlens_q, cu_seqlens_k;
  tg_tensor key_start, key_count, query_start;
  tg_tensor block_table;
  float scale;
  float softcap;
  int32_t window;
  bool causal;
  bool allow_tf32;
  void *workspace;
  size_t workspace_bytes;
} tg_attention_fwd_args;

/**
 * Attention, forward.
 *
 *   s[i,j] = scale * sum_c q[i,c] * k[j,c];  with softcap > 0: s = softcap * tanh(s / softcap)
 *   lse[i] = log(sum_j e^s[i,j] + e^sinks)   natural log, over the visible j; without sinks the
 *                                            term e^sinks is absent
 *   out[i] = sum_j e^(s[i,j] - lse[i]) * v[j]
 *
 *   q             in   [batch, nq, q_heads, head_dim]       f32|f16|bf16  last axis contiguous
 *   k             in   [batch, extent, kv_heads, head_dim]  dtype of q    last axis contiguous
 *   v             in   [batch, extent, kv_heads, v_dim]     dtype of q    last axis contiguous
 *   out           out  [batch, nq, q_heads, v_dim]          dtype of q    last axis contiguous
 *   lse           out  [batch, q_heads, nq]      f32  optional; tg_attention_bwd needs it
 *   sinks         in   [q_heads]                 dtype of q, or f32; optional
 *   cu_seqlens_q  in   [batch + 1]               i32  optional; then q, out are [1, total_q, ..]
 *                                                     and lse is [1, q_heads, total_q]
 *   cu_seqlens_k  in   [batch + 1]               i32  optional; then k, v are [1, total_k, ..]
 *   key_start     in   [batch]                   i32  optional
 *   key_count     in   [batch]                   i32  optional
 *   query_start   in   [batch]                   i32  optional
 *   block_table   in   [batch, max_blocks]       i32  optional; not with cu_seqlens_k; then k, v
 *                                                     are [num_blocks, block_size, kv_heads, ..]
 *   scale    > 0
 *   softcap  >= 0; 0 is off
 *   window   >= 0; 0 is off
 *   causal   false or true; see "Visible"
 *   allow_tf32  false: f32 products are computed in f32. true: their operands may be rounded to
 *            TF32 (10 bits of mantissa), with f32 sums. CUDA uses TF32 from compute capability 8.0
 *            on. The flag has no effect on CPUs and on 16-bit tensors.
 *
 * q, k and v may be views into one packed tensor: only the last axis needs stride 1.
 * A query that sees no key, or whose scores are all -infinity, has out = 0 and lse = -infinity
 * (with sinks: lse = the sink).
 *
 * Math       f32, online softmax: a running maximum and sum over blocks of keys, and one rounding
 *            of out (ref: f64). No buffer of [nq, extent] is allocated. NaN and infinity in a query
 *            affect only its row of out. In a key or value they affect only the queries that see
 *            it.
 * Workspace  tg_attention_fwd_workspace.  Asynchronous; capturable; deterministic; batch-invariant
 *            between calls with the same layout: at equal nq and extent a sequence has the same
 *            bits alone and among others.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (scale, softcap, window; out overlaps an input;
 *            workspace missing or too small; in the data: cu_seqlens, key_start, key_count, or a
 *            block_table entry that holds keys, out of range), UNSUPPORTED.
 *            CUDA: tg_context_check returns errors in the data. out and lse of the affected
 *            sequence are NaN; with wrong cu_seqlens those of all sequences are.
 * Source     Vaswani et al. 2017, arXiv:1706.03762, eq. 1; Milakov & Gimelshein 2018,
 *            arXiv:1805.02867 (online softmax); Dao 2023, arXiv:2307.08691 (tiles); Ainslie et al.
 *            2023, arXiv:2305.13245 (shared kv heads); Beltagy et al. 2020, arXiv:2004.05150
 *            (window); Xiao et al. 2023, arXiv:2309.17453 (sinks); Kwon et al. 2023,
 *            arXiv:2309.06180 (paged keys).
 */
TG_API tg_status tg_attention_fwd(tg_context *ctx, const tg_attention_fwd_args *args);

/** Workspace bytes of tg_attention_fwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_attention_fwd_workspace(const tg_context *ctx,
                                            const tg_attention_fwd_args *args, size_t *bytes);

typedef struct tg_attention_bwd_args {
  tg_tensor dout, q, k, v, out, lse;
  tg_tensor sinks;
  tg_tensor cu_seqlens_q, cu_seqlens_k;
  tg_tensor key_start, key_count, query_start;
  tg_tensor dq, dk, dv, dsinks;
  float scale;
  float softcap;
  int32_t window;
  bool causal;
  bool allow_nondeterministic;
  bool allow_tf32;
  void *workspace;
  size_t workspace_bytes;
} tg_attention_bwd_args;

/**
 * Attention, backward.
 *
 *   p[i,j]    = e^(s[i,j] - lse[i]) for visible j, else 0
 *   delta[i]  = sum_c dout[i,c] * out[i,c]
 *   dv[j]     = sum_i p[i,j] * dout[i]
 *   g[i,j]    = p[i,j] * (sum_c dout[i,c] * v[j,c] - delta[i]);
 *               with softcap: g *= 1 - (s[i,j] / softcap)^2
 *   dq[i]     = scale * sum_j g[i,j] * k[j]
 *   dk[j]     = scale * sum_i g[i,j] * q[i]
 *   dsinks   += -sum_i e^(sinks - lse[i]) * delta[i]
 *
 * Sums over i run over the queries of all heads that share the kv head.
 *
 *   dout          in   shape and dtype of out                              last axis contiguous
 *   q             in   [batch, nq, q_heads, head_dim]       f32|f16|bf16  last axis contiguous
 *   k             in   [batch, extent, kv_heads, head_dim]  dtype of q    last axis contiguous
 *   v             in   [batch, extent, kv_heads, v_dim]     dtype of q    last axis contiguous
 *   out           in   [batch, nq, q_heads, v_dim]          dtype of q    last axis contiguous;
 *                                                                         from tg_attention_fwd
 *   lse           in   [batch, q_heads, nq]      f32  from tg_attention_fwd
 *   sinks         in   [q_heads]                 dtype of q, or f32; optional
 *   cu_seqlens_q  in   [batch + 1]               i32  optional; shapes as in the forward
 *   cu_seqlens_k  in   [batch + 1]               i32  optional; shapes as in the forward
 *   key_start     in   [batch]                   i32  optional
 *   key_count     in   [batch]                   i32  optional
 *   query_start   in   [batch]                   i32  optional
 *   dq            out  shape and dtype of q      optional; last axis contiguous
 *   dk            out  shape and dtype of k      optional; last axis contiguous
 *   dv            out  shape and dtype of v      optional; last axis contiguous
 *   dsinks        acc  [q_heads]                 dtype of sinks, or f32; optional; needs sinks
 *   scale, softcap, window, causal  those of the forward
 *   allow_nondeterministic  false: the same bits on every call. true: a device may add in any
 *           order. CUDA then sums dq with atomics where that is faster; the CPU ignores the flag.
 *   allow_tf32  as in the forward; also for products of p and of the scores' gradients
 *
 * Paged keys (block_table) have no backward. dq, dk and dv may be views into one packed tensor.
 * They are written whole: 0 for queries that see no key and for keys that no query sees.
 *
 * Math       f32, one rounding per result (ref: f64). p is recomputed from lse, tile by tile. NaN
 *            and infinity propagate only along visible pairs.
 * Workspace  tg_attention_bwd_workspace.  Asynchronous; capturable; deterministic unless
 *            allow_nondeterministic is set; dq is batch-invariant.
 * Errors     those of the forward (CUDA: NaN in dq, dk and dv), and BAD_ARGUMENT for dsinks without
 *            sinks.
 * Source     Dao 2023, arXiv:2307.08691, section 3.1; dsinks: derivative of the forward.
 */
TG_API tg_status tg_attention_bwd(tg_context *ctx, const tg_attention_bwd_args *args);

/** Workspace bytes of tg_attention_bwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_attention_bwd_workspace(const tg_context *ctx,
                                            const tg_attention_bwd_args *args, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
