/** Changing logits before a token is picked: biases and penalties (model.h has the rule). */
#ifndef TGI_GENERATION_PENALTIES_H
#define TGI_GENERATION_PENALTIES_H

#include "tegula/model.h"

/** The tokens that penalties look at. */
typedef struct tgi_told {
  const int32_t *ids; /* [count], within the vocabulary */
  int64_t count;
  int64_t num_generated; /* the last ones */
} tgi_told;

static inline bool tgi_has_repetition(const tg_sampling *s)
{
  return s->repetition_penalty != 0 && s->repetition_penalty != 1;
}

/** Whether anything but the repetition penalty changes logits. */
static inline bool tgi_has_additions(const tg_sampling *s)
{
  return s->presence_penalty != 0 || s->frequency_penalty != 0 || s->num_logit_bias > 0;
}

/** Index of the first of `count` tokens that the penalties look at. */
static inline int64_t tgi_penalty_start(const tg_sampling *s, int64_t count)
{
  return s->penalty_window > 0 && s->penalty_window < count ? count - s->penalty_window : 0;
}

/** Checks the fields that change logits; messages begin with `function`. Errors: BAD_ARGUMENT. */
tg_status tgi_penalties_check(const tg_sampling *s, int32_t vocab_size, const char *function,
                              tg_error *error);

/** tg_adjust_logits of checked arguments. `counts` is [vocab_size] of zeros, and is so again
 * afterwards; without penalties it may be NULL. */
void tgi_penalties_apply(float *logits, const tg_sampling *s, tgi_told told, int32_t *counts);

#endif
