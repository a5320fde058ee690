/** Sampling: picks token ids from logits. */
#ifndef TEGULA_SAMPLE_H
#define TEGULA_SAMPLE_H

#include "context.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_sample_fwd_args {
  tg_tensor logits, history, history_lengths, positions, seeds, ids, log_prob;
  int64_t seed, position;
  float temperature, top_p, min_p, repetition_penalty;
  int32_t top_k;
  void *workspace;
  size_t workspace_bytes;
} tg_sample_fwd_args;

/**
 * Picks one id per row. The steps, in order:
 *
 *   z[j]    = logits[j]; for each id in the row's history divided by repetition_penalty if above
 *             0, else multiplied by it (once, however often the id occurs)
 *   greedy    temperature 0: the lowest id of the largest z; the other steps are skipped
 *   rank      by z, largest first; among equals the lowest id first
 *   w[j]    = floor(2^40 * 2^e), e = ((z[j] - max z) / temperature) * log2(e), an integer
 *   top_k     keeps the first k by rank
 *   top_p     of these keeps the fewest by rank whose w sum to ceil(top_p * their sum) or more
 *   min_p     of these keeps all with w >= ceil(min_p * 2^40)
 *   draw      S = sum of w over the ids kept, R = 64 random bits: the id at which the running sum
 *             of w, in the order of ids, first exceeds floor(R * S / 2^64)
 *
 *   logits           in   [rows, vocab]  f32|f16|bf16   last axis contiguous; an id with
 *                                                       -infinity is never picked
 *   history          in   [rows, n]      i32|i64        optional; last axis contiguous
 *   history_lengths  in   [rows]         i32|i64        optional: how many of the n ids are
 *                                                       used; absent: all
 *   positions        in   [rows]         i32|i64        optional: added to `position`, per row
 *   seeds            in   [rows]         i32|i64        optional: the row's seed; it then draws as
 *                                                       row 0 of a call with that seed
 *   ids              out  [rows]         i32|i64
 *   log_prob         out  [rows]         f32            optional; natural log of w / S of the id,
 *                                                       computed from z instead of w; 0 if greedy
 *   seed, position      any; R is Philox4x32-10 with key seed and a counter of row (high) and the
 *                       row's position (low): word 0 is the high half of R, word 1 the low half
 *   temperature         finite, >= 0
 *   top_k               >= 0; 0: off
 *   top_p, min_p        0 to 1; 0: off; top_p 1: off
 *   repetition_penalty  finite, >= 0; 0 or 1: off
 *
 * Math       z and e are f32 operations rounded once each; log2(e) is rounded to f32. With n the
 *            integer nearest to e (ties to even; at least -60) and r = e - n, 2^r is a polynomial
 *            of degree 6 by Horner's rule, each product and sum rounded to f32, within 2^-22
 *            (src/ops/sample/sample_weight.h lists the coefficients). Sums of w are exact, so the
 *            ids are equal on every backend, instruction set and number of threads. Weights below
 *            2^-40 of the largest are 0: their ids are never picked. top_p * sum and min_p * 2^40
 *            are f64 products, rounded once. log_prob is within 2e-6 (ref: f64).
 *            Rows of a batch draw independently, even if their logits and positions are equal;
 *            with `seeds`, rows of equal seeds and positions draw alike, alone or in any batch.
 * Workspace  tg_sample_fwd_workspace. CUDA: for each row, of up to 256, 8 bytes for every 256 ids
 *            and one bit per id.  Asynchronous; capturable; deterministic.
 * Errors     BAD_SHAPE (vocab < 1 or above 2^23), BAD_DTYPE, BAD_ARGUMENT (a scalar; a row with a
 *            logit that is NaN or +infinity, or without a finite logit; a history id or length out
 *            of range; an overlap; workspace missing or too small), UNSUPPORTED.
 *            A row with such logits has id -1 and log_prob NaN, and the other rows are picked. With
 *            a history id or length out of range nothing is written (CUDA: the row has id -1 and
 *            log_prob NaN). CUDA: tg_context_check returns errors in the data.
 * Source     Holtzman et al. 2020, arXiv:1904.09751, section 3.1 (top_p); Nguyen et al. 2024,
 *            arXiv:2407.01082, section 3 (min_p); Keskar et al. 2019, arXiv:1909.05858, section 4.1
 *            (repetition penalty); Salmon et al. 2011, doi:10.1145/2063384.2063405 (Philox).
 */
TG_API tg_status tg_sample_fwd(tg_context *ctx, const tg_sample_fwd_args *args);

/** Workspace bytes of tg_sample_fwd, from shapes and the context (its threads) alone. */
TG_API tg_status tg_sample_fwd_workspace(const tg_context *ctx, const tg_sample_fwd_args *args,
                                         size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
