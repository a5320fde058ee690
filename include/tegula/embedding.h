/** Token embedding with optional learned positions, forward and backward. */
#ifndef TEGULA_EMBEDDING_H
#define TEGULA_EMBEDDING_H

#include "context.h"
#include "tensor.h"
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_embedding_fwd_args {
  tg_tensor ids, table, positions, position_ids, y;
  int64_t seq_len;
  int64_t position_offset;
} tg_embedding_fwd_args;

/**
 * Embedding, forward.
 *
 *   p[i]   = position_ids[i]                                     if given, else
 *            position_offset + (seq_len > 0 ? i mod seq_len : i)
 *   y[i,j] = table[ids[i],j] + positions[p[i],j]                 without positions: table[ids[i],j]
 *
 *   ids           in   [tokens]              i32|i64        0 .. vocab - 1
 *   table         in   [vocab, dim]          f32|f16|bf16   last axis contiguous
 *   positions     in   [max_positions, dim]  dtype of table optional; last axis contiguous
 *   position_ids  in   [tokens]              i32|i64        optional, only with positions;
 *                                                           0 .. max_positions - 1
 *   y             out  [tokens, dim]         dtype of table last axis contiguous
 *   seq_len          >= 0; tokens of each sequence, when the tokens are several sequences of equal
 *                    length one after another. 0: all tokens are one sequence
 *   position_offset  >= 0; position of each sequence's first token (to decode a batch at position
 *                    p: seq_len 1, position_offset p)
 *
 * seq_len and position_offset are used only with positions and without position_ids.
 *
 * Math       One f32 addition, rounded once to y's dtype (ref: f64); without positions a copy. Ids
 *            may repeat.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE (also: positions has too few rows for seq_len and position_offset),
 *            BAD_DTYPE, BAD_ARGUMENT (an id or position id out of range: the message names its
 *            index and nothing is written; seq_len, position_offset; position_ids without
 *            positions; y overlaps an input), UNSUPPORTED.
 *            CUDA: tg_context_check returns the error of an id or position id out of range; the row
 *            of y is NaN.
 * Source     Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2;
 *            learned positions).
 */
TG_API tg_status tg_embedding_fwd(tg_context *ctx, const tg_embedding_fwd_args *args);

/** Always 0 bytes. */
TG_API tg_status tg_embedding_fwd_workspace(const tg_context *ctx,
                                            const tg_embedding_fwd_args *args, size_t *bytes);

typedef struct tg_embedding_bwd_args {
  tg_tensor dy, ids, position_ids, dtable, dpositions;
  int64_t seq_len;
  int64_t position_offset;
  void *workspace;
  size_t workspace_bytes;
} tg_embedding_bwd_args;

/**
 * Embedding, backward.
 *
 *   dtable[v,j]     += sum over i with ids[i] = v of dy[i,j]
 *   dpositions[p,j] += sum over i with p[i] = p of dy[i,j]        p[i] as in the forward
 *
 *   dy            in   [tokens, dim]         f32|f16|bf16        last axis contiguous
 *   ids           in   [tokens]              i32|i64             0 .. vocab - 1
 *   position_ids  in   [tokens]              i32|i64             optional; 0 .. max_positions - 1
 *   dtable        acc  [vocab, dim]          dtype of dy, or f32 optional; last axis contiguous
 *   dpositions    acc  [max_positions, dim]  dtype of dy, or f32 optional; last axis contiguous
 *   seq_len, position_offset  those of the forward
 *
 * Math       f32 sums in the order of the tokens, starting from the accumulator's old value,
 *            rounded once at the end (ref: f64). Rows whose id does not occur are not accessed. ids
 *            are read only with dtable, position_ids only with dpositions.
 * Workspace  tg_embedding_bwd_workspace: 24 bytes a token; 0 without dtable and dpositions. CUDA:
 *            in addition 2 KiB for each tile of 1024 tokens (or of a 128th of all tokens, if that
 *            is more) and 9 bits of the ids; 0 for dpositions without position_ids.
 *            Asynchronous; capturable; deterministic.
 * Errors     those of the forward, and BAD_ARGUMENT (workspace missing or too small). An id or
 *            position id out of range: nothing is written (CUDA: its row of dy is skipped).
 * Source     derivative of the forward.
 */
TG_API tg_status tg_embedding_bwd(tg_context *ctx, const tg_embedding_bwd_args *args);

/** Workspace bytes of tg_embedding_bwd, from shapes, dtypes and the context alone. */
TG_API tg_status tg_embedding_bwd_workspace(const tg_context *ctx,
                                            const tg_embedding_bwd_args *args, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
