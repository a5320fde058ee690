#include "ops/kernels.h"

#include <math.h>

enum { kLargestVocab = 1 << 23 }; /* so many weights of 2^40 sum to 2^63 */

static void want_share(tgi_call *call, const char *argument, float value)
{
  if (!(value >= 0 && value <= 1)) {
    tgi_fail(call, TG_BAD_ARGUMENT, argument, "expected 0 to 1, got %g", (double)value);
  }
}

static void want_zero_or_more(tgi_call *call, const char *argument, float value)
{
  if (!isfinite(value) || value < 0) {
    tgi_fail(call, TG_BAD_ARGUMENT, argument, "expected a finite number >= 0, got %g",
             (double)value);
  }
}

void tgi_sample_fwd_check(tgi_call *call, const tg_sample_fwd_args *a)
{
  const int64_t rows = a->logits.shape[0], vocab = a->logits.shape[1];
  if (vocab < 1 || vocab > kLargestVocab) {
    tgi_fail(call, TG_BAD_SHAPE, "logits", "expected a vocabulary of 1 to %d, got %lld",
             kLargestVocab, (long long)vocab);
  }
  TGI_WANT_SHAPE(call, a, history, rows, a->history.shape[1]);
  TGI_WANT_SHAPE(call, a, history_lengths, rows);
  TGI_WANT_SHAPE(call, a, positions, rows);
  TGI_WANT_SHAPE(call, a, seeds, rows);
  TGI_WANT_SHAPE(call, a, ids, rows);
  TGI_WANT_SHAPE(call, a, log_prob, rows);
  if (tgi_present(&a->history_lengths) && !tgi_present(&a->history)) {
    tgi_fail(call, TG_BAD_ARGUMENT, "history", "expected ids beside history_lengths, got none");
  }
  want_zero_or_more(call, "temperature", a->temperature);
  want_share(call, "top_p", a->top_p);
  want_share(call, "min_p", a->min_p);
  want_zero_or_more(call, "repetition_penalty", a->repetition_penalty);
  tgi_want_range(call, "top_k", a->top_k, 0, INT32_MAX);
  call->empty = rows == 0;
}
