#include "penalties.h"

#include "core/error_record.h"
#include <math.h>
#include <stdlib.h>

static tg_status check_bias(const tg_sampling *s, int32_t vocab_size, const char *function,
                            tg_error *error)
{
  if (s->num_logit_bias < 0 || (s->num_logit_bias > 0 && !s->logit_bias)) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "%s: logit_bias: expected %lld values, got %s",
                         function, (long long)(s->num_logit_bias < 0 ? 0 : s->num_logit_bias),
                         s->num_logit_bias < 0 ? "less than none" : "NULL");
  }
  for (int64_t i = 0; i < s->num_logit_bias; i++) {
    const tg_logit_bias b = s->logit_bias[i];
    if (b.id < 0 || b.id >= vocab_size) {
      return tgi_error_set(error, TG_BAD_ARGUMENT,
                           "%s: logit_bias[%lld].id: expected 0 to %d, "
                           "got %d",
                           function, (long long)i, vocab_size - 1, b.id);
    }
    if (!(b.value < INFINITY)) {
      return tgi_error_set(error, TG_BAD_ARGUMENT,
                           "%s: logit_bias[%lld].value: expected a finite number or -infinity, "
                           "got %g",
                           function, (long long)i, (double)b.value);
    }
  }
  return TG_OK;
}

tg_status tgi_penalties_check(const tg_sampling *s, int32_t vocab_size, const char *function,
                              tg_error *error)
{
  const struct {
    const char *name;
    float value;
    bool may_be_negative;
  } penalties[] = {{"repetition_penalty", s->repetition_penalty, false},
                   {"presence_penalty", s->presence_penalty, true},
                   {"frequency_penalty", s->frequency_penalty, true}};
  for (size_t i = 0; i < sizeof penalties / sizeof penalties[0]; i++) {
    if (!isfinite(penalties[i].value) ||
        (penalties[i].value < 0 && !penalties[i].may_be_negative)) {
      return tgi_error_set(error, TG_BAD_ARGUMENT, "%s: %s: expected a finite number%s, got %g",
                           function, penalties[i].name, penalties[i].may_be_negative ? "" : " >= 0",
                           (double)penalties[i].value);
    }
  }
  if (s->penalty_window < 0) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "%s: penalty_window: expected 0 or more, got %d",
                         function, s->penalty_window);
  }
  return check_bias(s, vocab_size, function, error);
}

/* The logit of an id that occurs in the window, `generated` times among what was generated. */
static float penalised(float z, const tg_sampling *s, int32_t generated)
{
  if (tgi_has_repetition(s)) {
    z = z > 0 ? z / s->repetition_penalty : z * s->repetition_penalty;
  }
  return generated > 0 ? z - (s->frequency_penalty * (float)generated + s->presence_penalty) : z;
}

void tgi_penalties_apply(float *logits, const tg_sampling *s, tgi_told told, int32_t *counts)
{
  for (int64_t i = 0; i < s->num_logit_bias; i++) {
    logits[s->logit_bias[i].id] += s->logit_bias[i].value;
  }
  if (!tgi_has_repetition(s) && s->presence_penalty == 0 && s->frequency_penalty == 0) {
    return;
  }
  /* A count is one more than how often the id was generated, so that a prompt's ids are seen. */
  const int64_t from = tgi_penalty_start(s, told.count);
  const int64_t generated_from = told.count - told.num_generated;
  for (int64_t i = from; i < told.count; i++) {
    int32_t *count = &counts[told.ids[i]];
    *count += (*count == 0) + (i >= generated_from);
  }
  for (int64_t i = from; i < told.count; i++) {
    const int32_t id = told.ids[i];
    if (counts[id] > 0) {
      logits[id] = penalised(logits[id], s, counts[id] - 1);
      counts[id] = 0;
    }
  }
}

static tg_status check_told(const tgi_told *told, int32_t vocab_size, tg_error *error)
{
  if (told->count < 0 || (told->count > 0 && !told->ids) || told->num_generated < 0 ||
      told->num_generated > told->count) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "adjust_logits: ids: expected %lld ids of which at most as many were "
                         "generated, got %s and %lld",
                         (long long)told->count, told->ids ? "a pointer" : "NULL",
                         (long long)told->num_generated);
  }
  for (int64_t i = 0; i < told->count; i++) {
    if (told->ids[i] < 0 || told->ids[i] >= vocab_size) {
      return tgi_error_set(error, TG_BAD_ARGUMENT,
                           "adjust_logits: ids[%lld]: expected 0 to %d, got %d", (long long)i,
                           vocab_size - 1, told->ids[i]);
    }
  }
  return TG_OK;
}

tg_status tg_adjust_logits(float *logits, int32_t vocab_size, const tg_sampling *sampling,
                           const int32_t *ids, int64_t count, int64_t num_generated,
                           tg_error *error)
{
  if (!logits || !sampling || vocab_size < 1) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "adjust_logits: logits, sampling: expected pointers and vocab_size >= 1, "
                         "got vocab_size %d",
                         vocab_size);
  }
  const tgi_told told = {ids, count, num_generated};
  tg_status status = tgi_penalties_check(sampling, vocab_size, "adjust_logits", error);
  status = status ? status : check_told(&told, vocab_size, error);
  if (status != TG_OK) {
    return status;
  }
  int32_t *counts = calloc((size_t)vocab_size, sizeof *counts);
  if (!counts) {
    return tgi_error_set(error, TG_NO_MEMORY, "adjust_logits: expected %zu bytes, got none",
                         (size_t)vocab_size * sizeof *counts);
  }
  tgi_penalties_apply(logits, sampling, told, counts);
  free(counts);
  return TG_OK;
}
