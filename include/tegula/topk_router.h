/** Router of a mixture of experts: the k best experts of each token, forward and backward. */
#ifndef TEGULA_TOPK_ROUTER_H
#define TEGULA_TOPK_ROUTER_H

#include "context.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What the weights of a token's k experts are. All select the same experts. */
typedef enum tg_router_scoring {
  TG_ROUTER_SELECTED = 1,     /* softmax of the k selected logits: GPT-OSS */
  TG_ROUTER_ALL = 2,          /* softmax of all logits: Qwen3-MoE without norm_topk_prob */
  TG_ROUTER_RENORMALIZED = 3, /* softmax of all logits divided by the sum of the k: Qwen3-MoE with
                                 norm_topk_prob, Mixtral */
} tg_router_scoring;

typedef struct tg_topk_router_fwd_args {
  tg_tensor logits, token_mask, indices, weights, counts, prob_sum;
  tg_router_scoring scoring;
  void *workspace;
  size_t workspace_bytes;
} tg_topk_router_fwd_args;

/**
 * Top-k router, forward.
 *
 *   indices[t,:]  = the k experts with the largest logits[t,:], the largest first; of equal logits
 *                   the lower index comes first
 *   p[t,e]        = exp(logits[t,e]) / sum_i(exp(logits[t,i]))
 *   weights[t,j]  = p[t,indices[t,j]]                                              ALL
 *                   p[t,indices[t,j]] / sum_i(p[t,indices[t,i]])                   RENORMALIZED
 *                   exp(logits[t,indices[t,j]]) / sum_i(exp(logits[t,indices[t,i]]))   SELECTED
 *   counts[e]     = how many of the indices[t,j] are e, over the counted tokens t
 *   prob_sum[e]   = sum of p[t,e] over the counted tokens t
 *
 *   logits      in   [tokens, experts]  f32|f16|bf16          last axis contiguous
 *   token_mask  in   [tokens]           i32|i64               optional; a token is counted if its
 *                                                             element is not 0; absent: all are
 *   indices     out  [tokens, k]        i32|i64               k is 1 to experts; last axis
 *                                                             contiguous
 *   weights     out  [tokens, k]        dtype of logits, f32  last axis contiguous
 *   counts      out  [experts]          i32                   optional
 *   prob_sum    out  [experts]          f32                   optional
 *   scoring     required
 *
 * counts and prob_sum are what the auxiliary loss of Switch Transformers needs:
 * experts * sum_e(counts[e] / n * prob_sum[e] / n) for n counted tokens. A loss over several layers
 * first adds them over the layers.
 *
 * Zeros of both signs are equal. A row with a NaN has the indices 0 .. k - 1 and weights of NaN. A
 * row whose largest logit is +infinity, or whose logits are all -infinity, has its indices by the
 * rule above and weights of NaN. Such a row, if it is counted, makes prob_sum NaN.
 *
 * Math       f32, one rounding of each weight, as in the models' classes (ref: f64). SELECTED and
 *            RENORMALIZED are one formula, for the sum over all experts cancels: they give the same
 *            bits. prob_sum: f32 sums over groups of 64 tokens, in the order of the tokens, added
 *            in f64 in an order that depends on the number of groups alone.
 * Workspace  tg_topk_router_fwd_workspace: with counts or prob_sum 8 bytes for each expert and 64
 *            tokens. CPU: in addition 4 bytes for each expert and 8 for each of the k, per thread.
 *            Asynchronous; capturable; deterministic; batch-invariant (indices and weights).
 * Errors     BAD_SHAPE (also: k above the number of experts; tokens * k or experts of 2^31 or
 *            more), BAD_DTYPE, BAD_ARGUMENT (scoring; an overlap; workspace missing or too small),
 *            UNSUPPORTED.
 * Source     Shazeer et al. 2017, arXiv:1701.06538, section 2.1 (SELECTED); Fedus et al. 2021,
 *            arXiv:2101.03961, section 2.2 (counts and prob_sum).
 */
TG_API tg_status tg_topk_router_fwd(tg_context *ctx, const tg_topk_router_fwd_args *args);

/** Workspace bytes of tg_topk_router_fwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_topk_router_fwd_workspace(const tg_context *ctx,
                                              const tg_topk_router_fwd_args *args, size_t *bytes);

typedef struct tg_topk_router_bwd_args {
  tg_tensor dweights, dprob_sum, logits, indices, token_mask, dlogits;
  tg_router_scoring scoring;
  void *workspace;
  size_t workspace_bytes;
} tg_topk_router_bwd_args;

/**
 * Top-k router, backward. With p and weights as in the forward, recomputed from logits:
 *
 *   dot[t]        = sum_j(weights[t,j] * dweights[t,j])
 *   dlogits[t,e]  = sum over j with indices[t,j] = e of                           SELECTED,
 *                   weights[t,j] * (dweights[t,j] - dot[t])                       RENORMALIZED
 *                   sum over j with indices[t,j] = e of weights[t,j] * dweights[t,j],
 *                   minus p[t,e] * dot[t]                                         ALL
 *                   plus, for a counted token t and with dprob_sum,
 *                     p[t,e] * (dprob_sum[e] - sum_i(p[t,i] * dprob_sum[i]))
 *
 *   dweights    in   [tokens, k]        dtype of logits, f32  last axis contiguous
 *   dprob_sum   in   [experts]          f32                   optional
 *   logits      in   [tokens, experts]  f32|f16|bf16          last axis contiguous
 *   indices     in   [tokens, k]        i32|i64               last axis contiguous; those of the
 *                                                             forward, 0 .. experts - 1
 *   token_mask  in   [tokens]           i32|i64               optional; used only with dprob_sum
 *   dlogits     out  [tokens, experts]  dtype of logits       last axis contiguous
 *   scoring     that of the forward
 *
 * SELECTED and RENORMALIZED without dprob_sum: dlogits is 0 for experts that were not selected.
 *
 * Math       f32, one rounding of each result (ref: f64).
 * Workspace  tg_topk_router_bwd_workspace: 4 bytes for each expert and 8 for each of the k, per
 *            thread; CUDA: none.
 *            Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     those of the forward, and BAD_ARGUMENT for an index out of range: the message names
 *            it and nothing is written. CUDA: tg_context_check returns that error; the row of
 *            dlogits is NaN.
 * Source     derivative of the forward.
 */
TG_API tg_status tg_topk_router_bwd(tg_context *ctx, const tg_topk_router_bwd_args *args);

/** Workspace bytes of tg_topk_router_bwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_topk_router_bwd_workspace(const tg_context *ctx,
                                              const tg_topk_router_bwd_args *args, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
