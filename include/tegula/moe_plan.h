/** Plan of a mixture of experts: rows of the tokens' experts, sorted by expert. */
#ifndef TEGULA_MOE_PLAN_H
#define TEGULA_MOE_PLAN_H

#include "context.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_moe_plan_fwd_args {
  tg_tensor indices, offsets, slot, row;
  void *workspace;
  size_t workspace_bytes;
} tg_moe_plan_fwd_args;

/**
 * Plan, forward.
 *
 * A token is computed by k experts, each of which computes its tokens as rows that follow each
 * other. Slot s = t * k + j is expert j of token t. The plan gives each slot a row:
 *
 *   offsets[e]  = number of slots whose expert is below e, for e = 0 .. experts
 *   slot[r]     = the slot of row r: by expert, those of one expert in rising order, dropped ones
 *                 last in rising order
 *   row[t,j]    = the row of slot t * k + j; -1 if it is dropped
 *
 * Expert e has the rows offsets[e] .. offsets[e + 1] - 1. An index of `experts` (one more than the
 * last expert) means that the slot is dropped: no expert computes it, as with experts of another
 * process.
 *
 *   indices  in   [tokens, k]     i32|i64  last axis contiguous; 0 .. experts
 *   offsets  out  [experts + 1]   i32      its extent says how many experts there are, at least 1
 *   slot     out  [tokens * k]    i32
 *   row      out  [tokens, k]     i32
 *
 * Math       Integers: a stable counting sort.
 * Workspace  tg_moe_plan_fwd_workspace: 4 * (experts + 1) bytes for each 4096 slots. CUDA: for each
 *            512 slots, and once more.
 *            Asynchronous; capturable; deterministic.
 * Errors     BAD_SHAPE (also: no expert; tokens * k or experts of 2^31 or more), BAD_DTYPE,
 *            BAD_ARGUMENT (an index out of range: the message names it and nothing is written; an
 *            overlap; workspace missing or too small), UNSUPPORTED.
 *            CUDA: tg_context_check returns the error of an index out of range; the slot is
 *            dropped.
 * Source     Knuth 1998, "The Art of Computer Programming" vol. 3, section 5.2, algorithm D.
 */
TG_API tg_status tg_moe_plan_fwd(tg_context *ctx, const tg_moe_plan_fwd_args *args);

/** Workspace bytes of tg_moe_plan_fwd, from shapes alone. */
TG_API tg_status tg_moe_plan_fwd_workspace(const tg_context *ctx, const tg_moe_plan_fwd_args *args,
                                           size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
