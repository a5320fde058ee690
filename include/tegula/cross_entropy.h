/** Cross-entropy over logits: forward, backward, and both in one pass. */
#ifndef TEGULA_CROSS_ENTROPY_H
#define TEGULA_CROSS_ENTROPY_H

#include "context.h"
#include "tensor.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How the rows' losses are reduced. */
typedef enum tg_reduction {
  TG_REDUCTION_NONE = 1,      /* loss is [rows] */
  TG_REDUCTION_SUM = 2,       /* their sum */
  TG_REDUCTION_MEAN = 3,      /* their sum / the number of rows that are not ignored */
  TG_REDUCTION_NUM_ITEMS = 4, /* their sum / num_items_in_batch; micro batches add up to one step */
} tg_reduction;

typedef struct tg_cross_entropy_fwd_args {
  tg_tensor logits, targets, num_items, loss, token_loss, log_prob, lse, argmax;
  int64_t ignore_index;
  int64_t num_items_in_batch;
  float label_smoothing;
  float z_loss;
  float softcap;
  tg_reduction reduction;
  bool has_ignore_index;
  void *workspace;
  size_t workspace_bytes;
} tg_cross_entropy_fwd_args;

/**
 * Cross-entropy, forward.
 *
 *   z[i,j]        = softcap > 0 ? softcap * tanh(logits[i,j] / softcap) : logits[i,j]
 *   lse[i]        = log(sum_j(exp(z[i,j])))                            natural log, as all losses
 *   log_prob[i]   = z[i,t] - lse[i]                                    t = targets[i]
 *   token_loss[i] = -(1 - label_smoothing) * log_prob[i]
 *                   - label_smoothing * mean_j(z[i,j] - lse[i])
 *                   + z_loss * lse[i]^2
 *   argmax[i]     = the lowest j with the largest logits[i,j]; the first NaN if there is one
 *   loss          = token_loss, or sum_i(token_loss[i]) / n
 *                   n = 1 (sum), the number of rows not ignored (mean), num_items_in_batch
 *
 *   logits      in   [rows, vocab]  f32|f16|bf16   last axis contiguous; vocab >= 1
 *   targets     in   [rows]         i32|i64        0 .. vocab - 1, or ignore_index
 *   num_items   in   [1] or []      i32|i64|f32    optional; num_items_in_batch in device memory
 *   loss        out  [rows] | [1]   f32            in nats; [rows] with TG_REDUCTION_NONE
 *   token_loss  out  [rows]         f32            optional
 *   log_prob    out  [rows]         f32            optional
 *   lse         out  [rows]         f32            optional; tg_cross_entropy_bwd needs it
 *   argmax      out  [rows]         i32|i64        optional
 *   ignore_index        with has_ignore_index; any value, inside the vocabulary or not. A row with
 *                       this target is not read: its token_loss, log_prob and lse are 0, its
 *                       argmax is -1
 *   num_items_in_batch  >= 1 with TG_REDUCTION_NUM_ITEMS unless num_items is given, else 0
 *   label_smoothing     0 .. 1
 *   z_loss              >= 0
 *   softcap             >= 0; 0: none
 *   reduction           required
 *
 * Math       f32 with a running maximum over pieces of the row, so the logits are read once (ref:
 *            f64). The rows' losses are added in f64 in row order (CUDA: every 1024th row into one
 *            of 1024 sums, then a tree of these). Nothing to divide by (mean with no rows or all
 *            rows ignored, num_items 0) gives 0 / 0 = NaN, as in PyTorch. NaN and +infinity affect
 *            only their own row, whose loss is NaN. -infinity is probability 0.
 * Workspace  tg_cross_entropy_fwd_workspace: 4 bytes a row, or 0 if reduction is none or token_loss
 *            is given.  Asynchronous; capturable; deterministic; the rows' results are
 *            batch-invariant.
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (a target out of range: the message names its index
 *            and nothing is written; a scalar; num_items and num_items_in_batch both or neither
 *            given; an overlap; workspace missing or too small), UNSUPPORTED.
 *            CUDA: tg_context_check returns the error of a target out of range. The row's results
 *            are NaN and its argmax is -1; a loss over all rows is NaN too.
 * Source     Milakov & Gimelshein 2018, arXiv:1805.02867 (running maximum); Szegedy et al. 2015,
 *            arXiv:1512.00567 (smoothing); Chowdhery et al. 2022, arXiv:2204.02311 (z-loss); Gemma
 *            Team 2024, arXiv:2408.00118 (softcap).
 */
TG_API tg_status tg_cross_entropy_fwd(tg_context *ctx, const tg_cross_entropy_fwd_args *args);

/** Workspace bytes of tg_cross_entropy_fwd, from shapes, scalars and the context alone. */
TG_API tg_status tg_cross_entropy_fwd_workspace(const tg_context *ctx,
                                                const tg_cross_entropy_fwd_args *args,
                                                size_t *bytes);

typedef struct tg_cross_entropy_bwd_args {
  tg_tensor dloss, logits, targets, num_items, lse, dlogits;
  int64_t ignore_index;
  int64_t num_items_in_batch;
  float label_smoothing;
  float z_loss;
  float softcap;
  tg_reduction reduction;
  bool has_ignore_index;
} tg_cross_entropy_bwd_args;

/**
 * Cross-entropy, backward.
 *
 *   p[i,j]       = exp(z[i,j] - lse[i])                                t = targets[i]
 *   g[i,j]       = (1 + 2 * z_loss * lse[i]) * p[i,j]
 *                  - label_smoothing / vocab - (j = t ? 1 - label_smoothing : 0)
 *   dlogits[i,j] = dloss / n * g[i,j] * (softcap > 0 ? 1 - (z[i,j] / softcap)^2 : 1)
 *                  0 in ignored rows, for any logits; n and z as in the forward
 *
 *   dloss      in   [rows] | [1]   f32              optional; absent: 1. [rows] with
 *                                                   TG_REDUCTION_NONE
 *   logits     in   [rows, vocab]  f32|f16|bf16     last axis contiguous
 *   targets    in   [rows]         i32|i64          0 .. vocab - 1, or ignore_index
 *   num_items  in   [1] or []      i32|i64|f32      optional; that of the forward
 *   lse        in   [rows]         f32              from tg_cross_entropy_fwd
 *   dlogits    out  [rows, vocab]  dtype of logits  last axis contiguous; may alias logits
 *   scalars    those of the forward
 *
 * Math       f32 including p - 1, and one rounding to dlogits' dtype (ref: f64). The logits are
 *            read once and dlogits are written once; lse replaces a second softmax.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant with TG_REDUCTION_NONE
 *            and TG_REDUCTION_SUM.
 * Errors     those of the forward. A target out of range: nothing is written (CUDA: its row of
 *            dlogits is NaN, and the row counts in a mean).
 * Source     derivative of the forward.
 */
TG_API tg_status tg_cross_entropy_bwd(tg_context *ctx, const tg_cross_entropy_bwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_cross_entropy_bwd_workspace(const tg_context *ctx,
                                                const tg_cross_entropy_bwd_args *args,
                                                size_t *bytes);

typedef struct tg_cross_entropy_fwdbwd_args {
  tg_tensor dloss, logits, targets, num_items;
  tg_tensor loss, token_loss, log_prob, lse, argmax, dlogits;
  int64_t ignore_index;
  int64_t num_items_in_batch;
  float label_smoothing;
  float z_loss;
  float softcap;
  tg_reduction reduction;
  bool has_ignore_index;
  void *workspace;
  size_t workspace_bytes;
} tg_cross_entropy_fwdbwd_args;

/**
 * Cross-entropy, forward and backward in one call, for training steps whose dloss is known
 * beforehand. Bit-identical to tg_cross_entropy_fwd followed by tg_cross_entropy_bwd.
 *
 *   dloss       in   [rows] | [1]   f32            optional; absent: 1. [rows] with
 *                                                  TG_REDUCTION_NONE
 *   logits      in   [rows, vocab]  f32|f16|bf16   last axis contiguous; vocab >= 1
 *   targets     in   [rows]         i32|i64        0 .. vocab - 1, or ignore_index
 *   num_items   in   [1] or []      i32|i64|f32    optional; num_items_in_batch in device memory
 *   loss        out  [rows] | [1]   f32            in nats; [rows] with TG_REDUCTION_NONE
 *   token_loss  out  [rows]         f32            optional
 *   log_prob    out  [rows]         f32            optional
 *   lse         out  [rows]         f32            optional
 *   argmax      out  [rows]         i32|i64        optional
 *   dlogits     out  [rows, vocab]  dtype of logits  last axis contiguous; may alias logits
 *   scalars     those of the forward
 *
 * Math       that of the two calls. The gradient of a row is computed while the row is in the cache
 *            (CUDA: on chip). If the row fits there, the logits are read from memory once and
 *            dlogits are written once.
 * Workspace  tg_cross_entropy_fwdbwd_workspace: that of the forward.  Asynchronous; capturable;
 *            deterministic; batch-invariant where the two calls are.
 * Errors     those of the forward.
 * Source     those of the forward and the backward.
 */
TG_API tg_status tg_cross_entropy_fwdbwd(tg_context *ctx, const tg_cross_entropy_fwdbwd_args *args);

/** Workspace bytes of tg_cross_entropy_fwdbwd, from shapes, scalars and the context alone. */
TG_API tg_status tg_cross_entropy_fwdbwd_workspace(const tg_context *ctx,
                                                   const tg_cross_entropy_fwdbwd_args *args,
                                                   size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
