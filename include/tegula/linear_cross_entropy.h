/** Cross-entropy of a linear head, without the logits in memory: forward, backward, and both in one
 * pass. */
#ifndef TEGULA_LINEAR_CROSS_ENTROPY_H
#define TEGULA_LINEAR_CROSS_ENTROPY_H

#include "context.h"
#include "cross_entropy.h"
#include "tensor.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_linear_cross_entropy_fwd_args {
  tg_tensor hidden, weight, bias, targets, num_items, loss, token_loss, log_prob, lse, argmax;
  int64_t ignore_index;
  int64_t num_items_in_batch;
  int64_t chunk_rows;
  int64_t chunk_cols;
  float label_smoothing;
  float z_loss;
  float softcap;
  tg_reduction reduction;
  bool has_ignore_index;
  void *workspace;
  size_t workspace_bytes;
} tg_linear_cross_entropy_fwd_args;

/**
 * Linear head and cross-entropy, forward.
 *
 *   logits[i,j] = sum_k hidden[i,k] * weight[j,k] + bias[j]
 *   z, lse, log_prob, token_loss, argmax, loss: as in tg_cross_entropy_fwd, from these logits
 *
 *   hidden      in   [rows, hidden_size]   f32|f16|bf16          last axis contiguous
 *   weight      in   [vocab, hidden_size]  dtype of hidden, or f32
 *                                                                last axis contiguous; vocab >= 1
 *   bias        in   [vocab]               dtype of weight, or f32   optional
 *   targets     in   [rows]                i32|i64               0 .. vocab - 1, or ignore_index
 *   num_items   in   [1] or []             i32|i64|f32           optional; num_items_in_batch on
 *                                                                the device
 *   loss        out  [rows] | [1]          f32                   [rows] with TG_REDUCTION_NONE
 *   token_loss  out  [rows]                f32                   optional
 *   log_prob    out  [rows]                f32                   optional
 *   lse         out  [rows]                f32                   optional;
 *                                                                tg_linear_cross_entropy_bwd needs
 *                                                                it
 *   argmax      out  [rows]                i32|i64               optional
 *   chunk_rows  >= 0: rows of a chunk of logits. 0: as many as 64 MiB (CUDA: 512 MiB) hold, but at
 *               least 64, in equal parts (CUDA: of whole 128 rows where these fit)
 *   chunk_cols  >= 0: its columns. 0: all
 *   other scalars  those of tg_cross_entropy_fwd
 *
 * Rows whose target is ignore_index cost nothing (CUDA: the products' time) and are not read, the
 * others are put side by side first; their token_loss, log_prob and lse are 0, argmax is -1. A
 * chunk is never larger than the problem. hidden_size may be 0.
 *
 * Math       The products as in tg_linear_fwd, to f32 logits that are never rounded further; the
 *            rest as in tg_cross_entropy_fwd, with the running maximum carried from chunk to chunk
 *            (ref: f64).
 * Workspace  tg_linear_cross_entropy_fwd_workspace: with r rows and c columns of a chunk, 4 r c
 *            bytes of logits (rows in whole cache lines), r rows of hidden, 72 bytes (CUDA: 64) a
 *            row of the problem, and the packed blocks of tg_linear_fwd (CUDA: none).
 *            Asynchronous; capturable; deterministic; the rows' results are batch-invariant and do
 *            not depend on chunk_rows (but through cublasLt, see tg_linear_fwd).
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (a target out of range, named by its index: nothing
 *            is written then; scalars; num_items and num_items_in_batch both or neither given;
 *            overlap; workspace missing or too small), UNSUPPORTED.
 *            CUDA: a target out of range is told by tg_context_check; its row's results are NaN and
 *            argmax -1, and so a loss of all rows is NaN.
 * Source     Wijmans et al. 2024, arXiv:2411.09009; Hsu et al. 2024, arXiv:2410.10989 (chunks).
 */
TG_API tg_status tg_linear_cross_entropy_fwd(tg_context *ctx,
                                             const tg_linear_cross_entropy_fwd_args *args);

/** Workspace bytes of tg_linear_cross_entropy_fwd, from shapes, dtypes, scalars and the context. */
TG_API tg_status tg_linear_cross_entropy_fwd_workspace(const tg_context *ctx,
                                                       const tg_linear_cross_entropy_fwd_args *args,
                                                       size_t *bytes);

typedef struct tg_linear_cross_entropy_bwd_args {
  tg_tensor dloss, hidden, weight, bias, targets, num_items, lse, dhidden, dweight, dbias;
  int64_t ignore_index;
  int64_t num_items_in_batch;
  int64_t chunk_rows;
  int64_t chunk_cols;
  float label_smoothing;
  float z_loss;
  float softcap;
  tg_reduction reduction;
  bool has_ignore_index;
  bool overwrite;
  void *workspace;
  size_t workspace_bytes;
} tg_linear_cross_entropy_bwd_args;

/**
 * Linear head and cross-entropy, backward: computes the logits once more, chunk by chunk.
 *
 *   dlogits[i,j]  as in tg_cross_entropy_bwd, from dloss and these logits
 *   dhidden[i,k]  = sum_j dlogits[i,j] * weight[j,k]                 0 in ignored rows
 *   dweight[j,k] += sum_i dlogits[i,j] * hidden[i,k]
 *   dbias[j]     += sum_i dlogits[i,j]
 *
 *   dloss      in   [rows] | [1]          f32            optional; absent: 1. [rows] with
 *                                                        TG_REDUCTION_NONE, exact for each row
 *   hidden     in   [rows, hidden_size]   f32|f16|bf16   last axis contiguous
 *   weight     in   [vocab, hidden_size]  dtype of hidden, or f32   last axis contiguous
 *   bias       in   [vocab]               dtype of weight, or f32   optional
 *   targets    in   [rows]                i32|i64        0 .. vocab - 1, or ignore_index
 *   num_items  in   [1] or []             i32|i64|f32    optional; that of the forward
 *   lse        in   [rows]                f32            from tg_linear_cross_entropy_fwd
 *   dhidden    out  [rows, hidden_size]   dtype of hidden           optional; last axis contiguous
 *   dweight    acc  [vocab, hidden_size]  dtype of weight, or f32   optional; last axis contiguous
 *   dbias      acc  [vocab]               dtype of weight, or f32   optional
 *   overwrite  dweight and dbias are overwritten instead; their old content is not read
 *   chunk_rows, chunk_cols  as in the forward, but 0 columns beside a 16-bit dweight: as many as
 *              32 MiB (CUDA: 4 GiB) of f32 sums hold, but at least 1024
 *   other scalars  those of the forward
 *
 * A gradient that is absent costs nothing.
 * CUDA: where one chunk of columns overwrites a contiguous 16-bit dweight whose memory holds
 * chunk_rows rows of logits (0: 512, or all), they lie there. Beside a 16-bit dweight 0 means: the
 * gradients of all rows' logits are kept where they take no more memory than f32 sums of dweight,
 * which is then one product, its sum rounded once; else those of as many rows as dweight's memory
 * holds, if it is overwritten. The logits are then cut by 384 MiB.
 *
 * Math       f32 (ref: f64). dlogits are rounded to bf16 where hidden and weight are both bf16, and
 *            stay f32 otherwise; sums over rows and columns are f32 across all chunks, whatever the
 *            gradients' dtypes, and are rounded once. An f32 dweight receives one chunk of rows
 *            after the other. The products as in tg_linear_bwd.
 * Workspace  tg_linear_cross_entropy_bwd_workspace: that of the forward, and 4 hidden_size bytes
 *            for each of r rows (of all rows, if there are several chunks of columns) with
 *            dhidden, 4 c hidden_size bytes with a 16-bit dweight (CUDA: at most, where gradients
 *            are kept instead), 4 c bytes with dbias; without the logits where dweight's memory
 *            holds them.
 *            Asynchronous; capturable; deterministic; dhidden is batch-invariant with
 *            TG_REDUCTION_NONE and TG_REDUCTION_SUM (but through cublasLt).
 * Errors     as the forward. CUDA: a row whose target is out of range has NaN in dhidden, and no
 *            part in dweight and dbias.
 * Source     derivative of the forward.
 */
TG_API tg_status tg_linear_cross_entropy_bwd(tg_context *ctx,
                                             const tg_linear_cross_entropy_bwd_args *args);

/** Workspace bytes of tg_linear_cross_entropy_bwd, from shapes, dtypes, scalars and the context. */
TG_API tg_status tg_linear_cross_entropy_bwd_workspace(const tg_context *ctx,
                                                       const tg_linear_cross_entropy_bwd_args *args,
                                                       size_t *bytes);

typedef struct tg_linear_cross_entropy_fwdbwd_args {
  tg_tensor dloss, hidden, weight, bias, targets, num_items;
  tg_tensor loss, token_loss, log_prob, lse, argmax, dhidden, dweight, dbias;
  int64_t ignore_index;
  int64_t num_items_in_batch;
  int64_t chunk_rows;
  int64_t chunk_cols;
  float label_smoothing;
  float z_loss;
  float softcap;
  tg_reduction reduction;
  bool has_ignore_index;
  bool overwrite;
  void *workspace;
  size_t workspace_bytes;
} tg_linear_cross_entropy_fwdbwd_args;

/**
 * Linear head and cross-entropy, forward and backward in one call: what training needs, with dloss
 * known beforehand. Gives the bits of tg_linear_cross_entropy_fwd and tg_linear_cross_entropy_bwd
 * with the same chunks.
 *
 *   dloss       in   [rows] | [1]          f32            optional; absent: 1
 *   hidden      in   [rows, hidden_size]   f32|f16|bf16   last axis contiguous
 *   weight      in   [vocab, hidden_size]  dtype of hidden, or f32   last axis contiguous
 *   bias        in   [vocab]               dtype of weight, or f32   optional
 *   targets     in   [rows]                i32|i64        0 .. vocab - 1, or ignore_index
 *   num_items   in   [1] or []             i32|i64|f32    optional
 *   loss        out  [rows] | [1]          f32            [rows] with TG_REDUCTION_NONE
 *   token_loss  out  [rows]                f32            optional
 *   log_prob    out  [rows]                f32            optional
 *   lse         out  [rows]                f32            the gradients are taken through it
 *   argmax      out  [rows]                i32|i64        optional
 *   dhidden     out  [rows, hidden_size]   dtype of hidden           optional; last axis contiguous
 *   dweight     acc  [vocab, hidden_size]  dtype of weight, or f32   optional; last axis contiguous
 *   dbias       acc  [vocab]               dtype of weight, or f32   optional
 *   overwrite, chunk_rows, chunk_cols      as in the backward
 *   other scalars  those of the forward
 *
 * Math       as the two. A chunk of all columns (chunk_cols 0, but beside a 16-bit dweight whose
 *            sums are too many; or >= vocab) is computed once: 6 rows hidden_size vocab flops for
 *            everything. With fewer columns the forward runs first, and the logits are computed
 *            twice: 8.
 * Workspace  tg_linear_cross_entropy_fwdbwd_workspace: that of the backward. With all columns a
 *            16-bit dweight takes 4 vocab hidden_size bytes of it.
 *            Asynchronous; capturable; deterministic; batch-invariant as the two.
 * Errors     as the two.
 * Source     as the forward and the backward.
 */
TG_API tg_status tg_linear_cross_entropy_fwdbwd(tg_context *ctx,
                                                const tg_linear_cross_entropy_fwdbwd_args *args);

/** Workspace bytes of tg_linear_cross_entropy_fwdbwd, from shapes, dtypes, scalars, the context. */
TG_API tg_status tg_linear_cross_entropy_fwdbwd_workspace(
    const tg_context *ctx, const tg_linear_cross_entropy_fwdbwd_args *args, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
