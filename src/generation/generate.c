/* Generating: tokens picked where the logits are, and fed from there. */
#include "core/error_record.h"
#include "penalties.h"
#include "session_state.h"
#include "tegula/device.h"

#include <stdlib.h>
#include <string.h>

/* A call of tg_session_generate. */
typedef struct run {
  tg_session *s;
  const tg_generate_options *o;
  int64_t start;   /* tokens before the first one that it picks */
  bool changes;    /* the host changes logits */
  bool reads;      /* the host reads logits */
  bool penalises;  /* the op applies the repetition penalty, to s->history */
  bool ahead;      /* passes are queued before the host knows their token */
  float *logits;   /* on a GPU: logits that the host changes */
  int32_t *counts; /* of tgi_penalties_apply */
} run;

/* The pass's logits in host memory. */
static tg_status read_logits(const tg_session *s)
{
  const size_t bytes = (size_t)s->model.config.vocab_size * sizeof(float);
  return s->on_gpu ? tg_memory_copy(s->ctx, s->logits, bytes, s->a.logits.data, bytes, bytes, 1)
                   : TG_OK;
}

static const float *host_logits(const tg_session *s)
{
  return s->on_gpu ? s->logits : s->a.logits.data;
}

static tg_status change_logits(const run *r)
{
  const tg_session *s = r->s;
  const size_t bytes = (size_t)s->model.config.vocab_size * sizeof(float);
  float *to = s->on_gpu ? r->logits : s->changed.data;
  memcpy(to, host_logits(s), bytes);
  const tgi_told told = {s->told, s->length, s->length - r->start};
  tgi_penalties_apply(to, &r->o->sampling, told, r->counts);
  return s->on_gpu ? tg_memory_copy(s->ctx, s->changed.data, bytes, to, bytes, bytes, 1) : TG_OK;
}

/* Token `number`, from the logits of the last pass, and on its way to the host. */
static tg_status pick(const run *r, int64_t number)
{
  tg_session *s = r->s;
  tgi_pass pass = {.ctx = s->ctx, .workspace = s->workspace, .workspace_bytes = s->workspace_bytes};
  tg_status status = r->reads ? read_logits(s) : TG_OK;
  if (status == TG_OK && r->changes) {
    status = change_logits(r);
  }
  if (!s->greedy || r->o->sampling.temperature != 0 || r->changes || r->penalises) {
    s->greedy = false;
    status = status ? status : tgi_session_pick(s, &pass, &r->o->sampling, r->changes);
  }
  return status ? status : tg_fetch_start(s->ctx, s->fetch[number % 2], s->ids.data);
}

/* The timeline into the history. */
static tg_status fill_history(const run *r)
{
  const size_t bytes = (size_t)r->s->length * sizeof(int32_t);
  return tg_memory_copy(r->s->ctx, r->s->history.data, bytes, r->s->told, bytes, bytes, 1);
}

/* A pass over the token picked last, and token `number` behind it; there is room. */
static tg_status go_on(const run *r, int64_t number)
{
  tg_session *s = r->s;
  tg_status status = TG_OK;
  s->has_logits = false;
  if (r->penalises) {
    int32_t *at = (int32_t *)s->history.data + s->length;
    status = tg_memory_copy(s->ctx, at, sizeof *at, s->ids.data, sizeof *at, sizeof *at, 1);
  }
  status = status ? status : tgi_session_step(s);
  if (status != TG_OK) {
    return status;
  }
  s->length++;
  return pick(r, number);
}

static bool stops(const tg_generate_options *o, int32_t id)
{
  for (int64_t i = 0; i < o->num_stop_ids; i++) {
    if (o->stop_ids[i] == id) {
      return true;
    }
  }
  return false;
}

/* A device says by the id -1 that nothing could be picked, and passes over -1 may have followed. */
static tg_status refuse_logits(const tg_session *s, int64_t position, tg_error *error)
{
  const tg_status status = tg_context_check(s->ctx);
  return status && status != TG_BAD_ARGUMENT
             ? tgi_error_set(error, status, "session_generate: %s", tg_context_message(s->ctx))
             : tgi_error_set(error, TG_BAD_ARGUMENT,
                             "session_generate: logits: expected finite ones for position %lld, "
                             "got NaN, infinity or none",
                             (long long)position);
}

/* What the host does with token `n` before it is handed on. */
static tg_status note_token(const run *r, int64_t n, int32_t id, tg_error *error)
{
  tg_session *s = r->s;
  if (r->start + n < s->capacity) {
    s->told[r->start + n] = id;
  }
  return r->o->logprobs ? tg_compute_logprobs(host_logits(s), s->model.config.vocab_size, id,
                                              r->o->logprobs, error)
                        : TG_OK;
}

/* Tokens 0, 1, ...; *passes: how many of them were fed, all but the last. */
static tg_status generate(const run *r, int64_t most, tg_token_callback *on_token, void *user,
                          int64_t *passes, tg_error *error)
{
  tg_session *s = r->s;
  tg_status status = r->penalises ? fill_history(r) : TG_OK;
  status = status ? status : pick(r, 0);
  for (int64_t n = 0; status == TG_OK; n++) {
    const bool last = n + 1 == most;
    int32_t id = -1;
    if (!last) {
      const tg_status grown = tgi_session_reserve(s, tgi_session_next_extent(s), error);
      if (grown != TG_OK) {
        return grown;
      }
    }
    if (r->ahead && !last) {
      status = go_on(r, n + 1);
    }
    if (status == TG_OK) {
      status = tg_fetch_wait(s->ctx, s->fetch[n % 2], &id);
    }
    if (status == TG_OK && id < 0) {
      return refuse_logits(s, r->start + n, error);
    }
    *passes = n;
    if (status == TG_OK) {
      const tg_status noted = note_token(r, n, id, error);
      if (noted != TG_OK || !on_token(user, id) || stops(r->o, id) || last) {
        return noted;
      }
    }
    if (status == TG_OK && !r->ahead) {
      status = go_on(r, n + 1);
    }
  }
  return tgi_error_set(error, status, "session_generate: %s", tg_context_message(s->ctx));
}

static tg_status check(const tg_session *s, const tg_generate_options *o,
                       tg_token_callback *on_token, tg_error *error)
{
  if (!s || !o || !on_token) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "session_generate: session, options, on_token: expected pointers, got "
                         "NULL");
  }
  if (o->max_new_tokens < 0) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "session_generate: max_new_tokens: expected 0 or more, got %lld",
                         (long long)o->max_new_tokens);
  }
  if (o->num_stop_ids < 0 || (o->num_stop_ids > 0 && !o->stop_ids)) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "session_generate: stop_ids: expected %lld ids, got %s",
                         (long long)(o->num_stop_ids < 0 ? 0 : o->num_stop_ids),
                         o->num_stop_ids < 0 ? "less than none" : "NULL");
  }
  if (o->logprobs && (o->logprobs->num_top < 0 || o->logprobs->num_top > TG_MAX_TOP_LOGPROBS)) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "session_generate: logprobs: num_top: expected 0 to %d, got %d",
                         TG_MAX_TOP_LOGPROBS, o->logprobs->num_top);
  }
  const tg_status status =
      tgi_penalties_check(&o->sampling, s->model.config.vocab_size, "session_generate", error);
  if (status != TG_OK) {
    return status;
  }
  if (!s->has_logits) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "session_generate: session: expected logits of a token fed last, got none "
                         "after %lld tokens",
                         (long long)s->length);
  }
  return TG_OK;
}

/* Who changes and reads logits: the op alone, where it can, so that no pass waits for the host. */
static tg_status set_up(run *r, tg_session *s, const tg_generate_options *o, tg_error *error)
{
  const size_t vocab = (size_t)s->model.config.vocab_size;
  const bool changes = tgi_has_additions(&o->sampling), reads = changes || o->logprobs;
  *r = (run){.s = s,
             .o = o,
             .start = s->length,
             .changes = changes,
             .reads = reads,
             .penalises = !changes && tgi_has_repetition(&o->sampling),
             .ahead = s->ahead && !reads};
  r->counts = changes ? calloc(vocab, sizeof *r->counts) : NULL;
  r->logits = changes && s->on_gpu ? malloc(vocab * sizeof *r->logits) : NULL;
  if (changes && (!r->counts || (s->on_gpu && !r->logits))) {
    return tgi_error_set(error, TG_NO_MEMORY,
                         "session_generate: expected room for %zu logits, got none", vocab);
  }
  return TG_OK;
}

tg_status tg_session_generate(tg_session *s, const tg_generate_options *options,
                              tg_token_callback *on_token, void *user, tg_error *error)
{
  tg_status status = check(s, options, on_token, error);
  if (status != TG_OK) {
    return status;
  }
  run r;
  status = set_up(&r, s, options, error);
  const int64_t fits = s->capacity - r.start + 1, wanted = options->max_new_tokens;
  int64_t passes = 0;
  if (status == TG_OK) {
    tgi_session_bind(s, 1);
    status =
        generate(&r, wanted > 0 && wanted < fits ? wanted : fits, on_token, user, &passes, error);
  }
  s->length = status == TG_OK ? r.start + passes : r.start;
  s->has_logits = s->has_logits && status != TG_OK; /* a refusal that came before any pass */
  free(r.counts);
  free(r.logits);
  return status;
}
