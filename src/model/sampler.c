/* Picking a token from logits. */
#include "core/error_record.h"
#include "core/philox.h"
#include "tegula/model.h"

#include <math.h>
#include <stdlib.h>

static tg_status check(const tg_sampling *s, tg_error *error)
{
  if (!(s->temperature >= 0) || !isfinite(s->temperature)) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "sample_token: temperature: expected 0 or more, got %g",
                         (double)s->temperature);
  }
  if (s->top_k < 0) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "sample_token: top_k: expected 0 or more, got %d",
                         s->top_k);
  }
  if (!(s->top_p >= 0 && s->top_p <= 1)) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "sample_token: top_p: expected 0 to 1, got %g",
                         (double)s->top_p);
  }
  if (!(s->min_p >= 0 && s->min_p <= 1)) {
    return tgi_error_set(error, TG_BAD_ARGUMENT, "sample_token: min_p: expected 0 to 1, got %g",
                         (double)s->min_p);
  }
  return TG_OK;
}

/* Index of the largest logit, the lowest of equals; -1 if none is a number above -infinity. */
static int32_t largest(const float *logits, int32_t n)
{
  int32_t best = -1;
  for (int32_t i = 0; i < n; i++) {
    if (logits[i] > -INFINITY && (best < 0 || logits[i] > logits[best])) {
      best = i;
    }
  }
  return best;
}

typedef struct candidate {
  double weight; /* relative to the most probable */
  int32_t id;
} candidate;

/* Most probable first; equals by id, so that the order is the same everywhere. */
static int by_weight(const void *a, const void *b)
{
  const candidate *x = a, *y = b;
  if (x->weight != y->weight) {
    return x->weight > y->weight ? -1 : 1;
  }
  return x->id < y->id ? -1 : x->id > y->id;
}

/* How many of the sorted candidates the filters leave: at least one. */
static int32_t filter(const candidate *c, int32_t n, const tg_sampling *s)
{
  if (s->top_k > 0 && s->top_k < n) {
    n = s->top_k;
  }
  if (s->top_p > 0 && s->top_p < 1) {
    double sum = 0, part = 0;
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++) {
      sum += c[i].weight;
    }
    while (kept < n && (kept == 0 || part < (double)s->top_p * sum)) {
      part += c[kept++].weight;
    }
    n = kept;
  }
  while (n > 1 && c[n - 1].weight < (double)s->min_p) {
    n--;
  }
  return n;
}

static int32_t draw(const candidate *c, int32_t n, const tg_sampling *s, uint64_t position)
{
  const tgi_philox_block random = tgi_philox(s->seed, 0, position);
  double sum = 0, part = 0;
  for (int32_t i = 0; i < n; i++) {
    sum += c[i].weight;
  }
  const double mark = tgi_uniform(random.word[0], random.word[1]) * sum;
  for (int32_t i = 0; i < n; i++) {
    part += c[i].weight;
    if (mark < part) {
      return c[i].id;
    }
  }
  return c[n - 1].id; /* rounding left the mark at the very end */
}

tg_status tg_sample_token(const float *logits, int32_t vocab_size, const tg_sampling *sampling,
                          uint64_t position, int32_t *id, tg_error *error)
{
  if (!logits || !sampling || !id || vocab_size < 1) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "sample_token: logits, sampling, id: expected pointers and vocab_size >= "
                         "1, got vocab_size %d",
                         vocab_size);
  }
  const tg_status status = check(sampling, error);
  if (status != TG_OK) {
    return status;
  }
  const int32_t best = largest(logits, vocab_size);
  if (best < 0 || isinf(logits[best])) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "sample_token: logits: expected a finite largest value, got %g",
                         best < 0 ? (double)NAN : (double)logits[best]);
  }
  *id = best;
  if (sampling->temperature == 0) {
    return TG_OK;
  }
  candidate *c = malloc((size_t)vocab_size * sizeof *c);
  if (!c) {
    return tgi_error_set(error, TG_NO_MEMORY, "sample_token: expected %zu bytes, got none",
                         (size_t)vocab_size * sizeof *c);
  }
  int32_t n = 0;
  for (int32_t i = 0; i < vocab_size; i++) {
    const double weight =
        exp(((double)logits[i] - (double)logits[best]) / (double)sampling->temperature);
    if (weight > 0) { /* neither NaN nor impossible */
      c[n++] = (candidate){weight, i};
    }
  }
  qsort(c, (size_t)n, sizeof *c, by_weight);
  n = filter(c, n, sampling);
  *id = draw(c, n, sampling, position);
  free(c);
  return TG_OK;
}
