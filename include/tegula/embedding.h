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
 *   seq_len          >= 0; tokens of one sequence when several of equal length follow one another,
 *                    0: all tokens are one sequence
 *   position_offset  >= 0; position of each sequence's first token (decoding at position p of a
 *                    batch: seq_len 1, position_offset p). Both matter with positions alone, and
 *                    not when position_ids is given
 *
 * Math       one f32 addition, rounded once to y's dtype (ref: f64); without positions a copy.
 *            Repeated ids are allowed.
 * Workspace  none.  Asynchronous; capturable; deterministic; batch-invariant.
 * Errors     BAD_SHAPE (also: positions has too few rows for seq_len and position_offset),
 *            BAD_DTYPE, BAD_ARGUMENT (an id or position id out of range, named by its index:
 *            nothing is written then; seq_len, position_offset; position_ids without positions; y
 *            overlaps an input), UNSUPPORTED.
 *            CUDA: an id or position id out of range is told by tg_context_check; its row is NaN.
 * Source     Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2),
 *            for learned positions.
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
 * Math       f32 sums in the order of the tokens, starting from the accumulator's old value, and
 *            one rounding at the end (ref: f64). Rows whose id does not occur are not touched. ids
 *            are read with dtable alone, position_ids with dpositions alone.
 * Workspace  tg_embedding_bwd_workspace: 24 bytes a token; 0 without dtable and dpositions. CUDA:
 *            and 2 KiB for each tile of 1024 tokens (or 128th of all, if that is more) and 9 bits
 *            of the ids; none for positions without position_ids.
 *            Asynchronous; capturable; deterministic.
 * Errors     as the forward, and BAD_ARGUMENT (workspace missing or too small). An id or position
 *            id out of range: nothing is written (CUDA: its row of dy is left out).
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
