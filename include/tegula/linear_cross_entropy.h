/**
 * Cross-entropy of a linear head, without the whole logits in memory: forward, backward, and both
 * in one call.
 */
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
 *   num_items   in   [1] or []             i32|i64|f32           optional; num_items_in_batch in
 *                                                                device memory
 *   loss        out  [rows] | [1]          f32                   in nats; [rows] with
 *                                                                TG_REDUCTION_NONE
 *   token_loss  out  [rows]                f32                   optional
 *   log_prob    out  [rows]                f32                   optional
 *   lse         out  [rows]                f32                   optional; for
 *                                                                tg_linear_cross_entropy_bwd
 *   argmax      out  [rows]                i32|i64               optional
 *   chunk_rows  >= 0: rows of a chunk of logits. 0: as many as fit in 64 MiB (CUDA: 512 MiB), but
 *               at least 64, split into equal chunks (CUDA: of whole 128 rows where these fit)
 *   chunk_cols  >= 0: columns of a chunk of logits. 0: all
 *   other scalars  those of tg_cross_entropy_fwd
 *
 * The other rows are first gathered, so rows whose target is ignore_index are not read and cost no
 * time (CUDA: they still cost the products' time). Their token_loss, log_prob and lse are 0 and
 * their argmax is -1. A chunk is never larger than the problem. hidden_size may be 0.
 *
 * Math       The products are those of tg_linear_fwd, with f32 logits that are not rounded further.
 *            The rest is as in tg_cross_entropy_fwd, with the running maximum carried from chunk to
 *            chunk (ref: f64).
 * Workspace  tg_linear_cross_entropy_fwd_workspace, for chunks of r rows and c columns: 4 r c bytes
 *            of logits (rows padded to whole cache lines), r rows of hidden, 72 bytes (CUDA: 64)
 *            per row of the problem, and the packed blocks of tg_linear_fwd (CUDA: none).
 *            Asynchronous; capturable; deterministic; the rows' results are batch-invariant and do
 *            not depend on chunk_rows (not through cublasLt, see tg_linear_fwd).
 * Errors     BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (a target out of range: the message names its index
 *            and nothing is written; a scalar; num_items and num_items_in_batch both or neither
 *            given; an overlap; workspace missing or too small), UNSUPPORTED.
 *            CUDA: tg_context_check returns the error of a target out of range. The row's results
 *            are NaN and its argmax is -1; a loss over all rows is NaN too.
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
 * Linear head and cross-entropy, backward. The logits are recomputed, chunk by chunk.
 *
 *   dlogits[i,j]  as in tg_cross_entropy_bwd, from dloss and these logits
 *   dhidden[i,k]  = sum_j dlogits[i,j] * weight[j,k]                 0 in ignored rows
 *   dweight[j,k] += sum_i dlogits[i,j] * hidden[i,k]
 *   dbias[j]     += sum_i dlogits[i,j]
 *
 *   dloss      in   [rows] | [1]          f32            optional; absent: 1. [rows] with
 *                                                        TG_REDUCTION_NONE, one for each row
 *   hidden     in   [rows, hidden_size]   f32|f16|bf16   last axis contiguous
 *   weight     in   [vocab, hidden_size]  dtype of hidden, or f32   last axis contiguous
 *   bias       in   [vocab]               dtype of weight, or f32   optional
 *   targets    in   [rows]                i32|i64        0 .. vocab - 1, or ignore_index
 *   num_items  in   [1] or []             i32|i64|f32    optional; that of the forward
 *   lse        in   [rows]                f32            from tg_linear_cross_entropy_fwd
 *   dhidden    out  [rows, hidden_size]   dtype of hidden           optional; last axis contiguous
 *   dweight    acc  [vocab, hidden_size]  dtype of weight, or f32   optional; last axis contiguous
 *   dbias      acc  [vocab]               dtype of weight, or f32   optional
 *   overwrite  true: dweight and dbias are overwritten and their old content is not read
 *   chunk_rows, chunk_cols  as in the forward. With a 16-bit dweight chunk_cols 0 means: as many as
 *              fit with their f32 sums of dweight in 32 MiB (CUDA: 4 GiB), but at least 1024
 *   other scalars  those of the forward
 *
 * An absent gradient costs nothing.
 *
 * CUDA, with a 16-bit dweight and one chunk of columns: dweight is "lent" if it is contiguous and
 * `overwrite` is set, since its memory may then hold intermediate values.
 *   chunk_rows > 0  The logits of a chunk lie in a lent dweight that holds chunk_rows rows of them.
 *   chunk_rows 0    If the gradients of all rows' logits need no more memory than f32 sums of
 *                   dweight, they are kept, and dweight is one product, its sum rounded once. The
 *                   logits then lie in a lent dweight that holds 512 rows of them, or all rows;
 *                   else in chunks of 384 MiB. If the gradients need more memory, a lent dweight
 *                   holds the gradients of as many rows as fit, if these are 512 or more; the
 *                   logits are then cut into chunks of 256 MiB.
 *
 * Math       f32 (ref: f64). dlogits are rounded to bf16 if hidden and weight are both bf16;
 *            otherwise they stay f32. Sums over rows and columns are f32 across all chunks,
 *            whatever the gradients' dtypes, and are rounded once. An f32 dweight is updated chunk
 *            by chunk of rows. The products are those of tg_linear_bwd.
 * Workspace  tg_linear_cross_entropy_bwd_workspace: that of the forward; with dhidden, 4
 *            hidden_size bytes for each of r rows (of all rows if there are several chunks of
 *            columns); with a 16-bit dweight, 4 c hidden_size bytes (CUDA: at most, if gradients
 *            are kept instead); with dbias, 4 c bytes. Logits that lie in dweight's memory need no
 *            workspace.
 *            Asynchronous; capturable; deterministic; dhidden is batch-invariant with
 *            TG_REDUCTION_NONE and TG_REDUCTION_SUM (not through cublasLt).
 * Errors     those of the forward. CUDA: a row whose target is out of range has NaN in dhidden, and
 *            does not contribute to dweight and dbias.
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
 * Linear head and cross-entropy, forward and backward in one call, for training steps whose dloss
 * is known beforehand. Bit-identical to tg_linear_cross_entropy_fwd followed by
 * tg_linear_cross_entropy_bwd with the same chunks.
 *
 *   dloss       in   [rows] | [1]          f32            optional; absent: 1
 *   hidden      in   [rows, hidden_size]   f32|f16|bf16   last axis contiguous
 *   weight      in   [vocab, hidden_size]  dtype of hidden, or f32   last axis contiguous
 *   bias        in   [vocab]               dtype of weight, or f32   optional
 *   targets     in   [rows]                i32|i64        0 .. vocab - 1, or ignore_index
 *   num_items   in   [1] or []             i32|i64|f32    optional
 *   loss        out  [rows] | [1]          f32            in nats; [rows] with TG_REDUCTION_NONE
 *   token_loss  out  [rows]                f32            optional
 *   log_prob    out  [rows]                f32            optional
 *   lse         out  [rows]                f32            the gradients are computed from it
 *   argmax      out  [rows]                i32|i64        optional
 *   dhidden     out  [rows, hidden_size]   dtype of hidden           optional; last axis contiguous
 *   dweight     acc  [vocab, hidden_size]  dtype of weight, or f32   optional; last axis contiguous
 *   dbias       acc  [vocab]               dtype of weight, or f32   optional
 *   overwrite, chunk_rows, chunk_cols      as in the backward
 *   other scalars  those of the forward
 *
 * Math       that of the two calls. With all columns in one chunk the logits are computed once: 6 *
 *            rows * hidden_size * vocab flops in all. One chunk holds all columns with chunk_cols
 *            >= vocab, and with chunk_cols 0 unless a 16-bit dweight has too many f32 sums.
 *            Otherwise the forward runs first and the logits are computed twice: 8 * rows *
 *            hidden_size * vocab flops.
 * Workspace  tg_linear_cross_entropy_fwdbwd_workspace: that of the backward. With all columns in
 *            one chunk a 16-bit dweight uses 4 vocab hidden_size bytes of it.
 *            Asynchronous; capturable; deterministic; batch-invariant where the two calls are.
 * Errors     those of the two calls.
 * Source     those of the forward and the backward.
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
