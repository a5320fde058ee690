/* Log-probabilities of a token and of the most probable ones. */
#include "core/error_record.h"
#include "tegula/model.h"

#include <math.h>

/* Puts an id into the list, which is sorted; of equals the one that came first stays before. */
static void rank(tg_token_logprobs *out, int32_t *filled, int32_t id, float logit)
{
  int32_t at = *filled;
  if (at == out->num_top && !(logit > out->top[at - 1].logprob)) {
    return;
  }
  at -= at == out->num_top;
  for (; at > 0 && logit > out->top[at - 1].logprob; at--) {
    out->top[at] = out->top[at - 1];
  }
  out->top[at] = (tg_logprob){id, logit};
  *filled += *filled < out->num_top;
}

tg_status tg_compute_logprobs(const float *logits, int32_t vocab_size, int32_t id,
                              tg_token_logprobs *out, tg_error *error)
{
  if (!logits || !out || id < 0 || id >= vocab_size) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "compute_logprobs: logits, out, id: expected pointers and an id below "
                         "vocab_size %d, got %d",
                         vocab_size, id);
  }
  if (out->num_top < 0 || out->num_top > TG_MAX_TOP_LOGPROBS) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "compute_logprobs: num_top: expected 0 to %d, got %d", TG_MAX_TOP_LOGPROBS,
                         out->num_top);
  }
  int32_t best = 0;
  bool finite = true;
  for (int32_t i = 0; i < vocab_size; i++) {
    finite = finite && logits[i] < INFINITY; /* no NaN either */
    best = logits[i] > logits[best] ? i : best;
  }
  const double largest = (double)logits[best];
  if (!finite || isinf(largest)) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "compute_logprobs: logits: expected finite ones, got NaN, infinity or "
                         "none");
  }
  double sum = 1; /* the largest one's */
  int32_t filled = 0;
  for (int32_t i = 0; i < vocab_size; i++) {
    sum += i == best ? 0 : exp((double)logits[i] - largest);
    if (out->num_top > 0) {
      rank(out, &filled, i, logits[i]);
    }
  }
  const double level = largest + log(sum);
  out->logprob = (float)((double)logits[id] - level);
  for (int32_t i = 0; i < out->num_top; i++) {
    out->top[i] = i < filled
                      ? (tg_logprob){out->top[i].id, (float)((double)out->top[i].logprob - level)}
                      : (tg_logprob){-1, -INFINITY};
  }
  return TG_OK;
}
