/* An engine's requests: their check, their memory, their end. */
#include "core/error_record.h"
#include "engine_state.h"
#include "penalties.h"
#include "tegula/sample.h"

#include <stdlib.h>
#include <string.h>

static tg_status check_prompt(const tg_engine *e, const tg_request *r, tg_error *error)
{
  if (!r->ids || r->count < 1 || r->count > e->scheduler.most_tokens) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "engine_submit: ids: expected 1 to %lld tokens, got %lld",
                         (long long)e->scheduler.most_tokens, r->ids ? (long long)r->count : 0LL);
  }
  for (int64_t i = 0; i < r->count; i++) {
    if (r->ids[i] < 0 || r->ids[i] >= e->model.config.vocab_size) {
      return tgi_error_set(error, TG_BAD_ARGUMENT,
                           "engine_submit: ids[%lld]: expected 0 to %d, got %d", (long long)i,
                           e->model.config.vocab_size - 1, r->ids[i]);
    }
  }
  return TG_OK;
}

/* The op's own check of the numbers; without memory nothing else is looked at. */
static tg_status check_numbers(tg_engine *e, const tg_sampling *how, tg_error *error)
{
  size_t bytes;
  const tg_sample_fwd_args args = {.logits =
                                       tg_tensor_2d(NULL, TG_F32, 1, e->model.config.vocab_size),
                                   .ids = tg_tensor_1d(NULL, TG_I32, 1),
                                   .temperature = how->temperature,
                                   .top_p = how->top_p,
                                   .min_p = how->min_p,
                                   .top_k = how->top_k};
  const tg_status status = tg_sample_fwd_workspace(e->ctx, &args, &bytes);
  return status ? tgi_error_set(error, status, "engine_submit: how: %s", tg_context_message(e->ctx))
                : TG_OK;
}

static tg_status check(tg_engine *e, const tg_request *r, tg_error *error)
{
  const tg_generate_options *o = &r->how;
  tg_status status = check_prompt(e, r, error);
  if (status != TG_OK) {
    return status;
  }
  if (o->max_new_tokens < 0) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "engine_submit: max_new_tokens: expected 0 or more, got %lld",
                         (long long)o->max_new_tokens);
  }
  if (o->num_stop_ids < 0 || (o->num_stop_ids > 0 && !o->stop_ids)) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "engine_submit: stop_ids: expected %lld ids, got %s",
                         (long long)(o->num_stop_ids < 0 ? 0 : o->num_stop_ids),
                         o->num_stop_ids < 0 ? "less than none" : "NULL");
  }
  if (o->logprobs && (o->logprobs->num_top < 0 || o->logprobs->num_top > TG_MAX_TOP_LOGPROBS)) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "engine_submit: logprobs: num_top: expected 0 to %d, got %d",
                         TG_MAX_TOP_LOGPROBS, o->logprobs->num_top);
  }
  status = tgi_penalties_check(&o->sampling, e->model.config.vocab_size, "engine_submit", error);
  return status ? status : check_numbers(e, &o->sampling, error);
}

/* Tokens that the request may know: as in a session of so many, the last one need not fit. */
static int64_t most_known(const tg_engine *e, const tg_request *r)
{
  const int64_t fits = e->scheduler.most_tokens + 1, wanted = r->how.max_new_tokens;
  return wanted > 0 && wanted < fits - r->count ? r->count + wanted : fits;
}

/* A request and copies of all that it was given, in two blocks. */
static tgi_request *make(const tg_engine *e, const tg_request *from)
{
  const int64_t most = most_known(e, from);
  const size_t blocks = (size_t)((most + TG_BLOCK_TOKENS - 1) / TG_BLOCK_TOKENS);
  const size_t stops = (size_t)from->how.num_stop_ids;
  const size_t biases = (size_t)from->how.sampling.num_logit_bias;
  tgi_request *r = calloc(1, sizeof *r);
  char *memory =
      malloc(((size_t)most + blocks + stops) * sizeof(int32_t) + biases * sizeof(tg_logit_bias));
  if (!r || !memory) {
    free(r);
    free(memory);
    return NULL;
  }
  *r = (tgi_request){.how = from->how,
                     .most = most,
                     .on_event = from->on_event,
                     .user = from->user,
                     .memory = memory};
  tg_logit_bias *bias = (tg_logit_bias *)memory; /* of 4-byte fields, as the ids */
  int32_t *ids = (int32_t *)(bias + biases), *stop = ids + (size_t)most + blocks;
  r->sequence.ids = ids;
  r->sequence.blocks = ids + most;
  r->sequence.prompt = r->sequence.known = from->count;
  memcpy(ids, from->ids, (size_t)from->count * sizeof *ids);
  if (stops > 0) {
    memcpy(stop, from->how.stop_ids, stops * sizeof *stop);
  }
  if (biases > 0) {
    memcpy(bias, from->how.sampling.logit_bias, biases * sizeof *bias);
  }
  r->how.stop_ids = stop;
  r->how.sampling.logit_bias = bias;
  return r;
}

tg_status tg_engine_submit(tg_engine *e, const tg_request *request, int64_t *number,
                           tg_error *error)
{
  if (!e || !request || !number || !request->on_event) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "engine_submit: engine, request, number, on_event: expected pointers, got "
                         "NULL");
  }
  const tg_status status = check(e, request, error);
  if (status != TG_OK) {
    return status;
  }
  tgi_request *r = make(e, request);
  if (!r) {
    return tgi_error_set(error, TG_NO_MEMORY,
                         "engine_submit: expected memory for %lld tokens, got none",
                         (long long)most_known(e, request));
  }
  *number = r->sequence.number = ++e->requests;
  tgi_scheduler_add(&e->scheduler, &r->sequence);
  return TG_OK;
}

static tgi_sequence *find(tgi_sequence *list, int64_t number)
{
  while (list && list->number != number) {
    list = list->next;
  }
  return list;
}

tg_status tg_engine_cancel(tg_engine *e, int64_t number)
{
  tgi_sequence *s = e ? find(e->scheduler.running, number) : NULL;
  s = s || !e ? s : find(e->scheduler.waiting, number);
  if (!s) {
    return TG_BAD_ARGUMENT;
  }
  s->cancelled = true;
  return TG_OK;
}

static void release(tg_engine *e, tgi_request *r)
{
  tgi_scheduler_end(&e->scheduler, &r->sequence);
  free(r->memory);
  free(r);
}

void tgi_engine_end(tg_engine *e, tgi_request *r, tg_finish finish, const tg_error *error)
{
  const tg_event event = {.request = r->sequence.number,
                          .id = -1,
                          .finish = finish,
                          .shared_tokens = r->sequence.shared,
                          .error = error};
  tg_event_callback *on_event = r->on_event;
  void *user = r->user;
  release(e, r); /* before the event: what it frees is there for what the callback submits */
  (void)on_event(user, &event);
}

tg_status tgi_engine_fail(tg_engine *e, const tg_context *ctx, tgi_sequence *const *sequence,
                          int32_t count, tg_status status, tg_error *error)
{
  tg_error why;
  tgi_error_set(&why, status, "engine_step: %s", tg_context_message(ctx));
  for (int32_t i = 0; i < count; i++) {
    tgi_engine_end(e, tgi_request_of(sequence[i]), TG_FINISH_FAILED, &why);
  }
  return tgi_error_set(error, status, "%s", why.text);
}

void tgi_engine_release_all(tg_engine *e)
{
  while (e->scheduler.running) {
    release(e, tgi_request_of(e->scheduler.running));
  }
  while (e->scheduler.waiting) {
    release(e, tgi_request_of(e->scheduler.waiting));
  }
}
