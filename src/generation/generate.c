/* Generating: tokens picked where the logits are, and fed from there. */
#include "core/error_record.h"
#include "session_state.h"
#include "tegula/device.h"

/* Token `number`, from the logits of the last pass, and on its way to the host. */
static tg_status pick(tg_session *s, const tg_sampling *sampling, int64_t number)
{
  tgi_pass pass = {.ctx = s->ctx, .workspace = s->workspace, .workspace_bytes = s->workspace_bytes};
  const tg_status status = tgi_session_pick(s, &pass, sampling);
  return status ? status : tg_fetch_start(s->ctx, s->fetch[number % 2], s->ids.data);
}

/* A pass over the token picked last, and token `number` behind it; there is room. */
static tg_status go_on(tg_session *s, const tg_sampling *sampling, int64_t number)
{
  s->has_logits = false;
  const tg_status status = tgi_session_step(s);
  if (status != TG_OK) {
    return status;
  }
  s->length++;
  return pick(s, sampling, number);
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

/* Tokens 0, 1, ...; *passes: how many of them were fed, all but the last. */
static tg_status generate(tg_session *s, const tg_generate_options *o, int64_t most,
                          tg_token_callback *on_token, void *user, int64_t *passes, tg_error *error)
{
  const int64_t start = s->length;
  tg_status status = pick(s, &o->sampling, 0);
  for (int64_t n = 0; status == TG_OK; n++) {
    const bool last = n + 1 == most;
    int32_t id = -1;
    if (!last) {
      const tg_status grown = tgi_session_reserve(s, tgi_session_next_extent(s), error);
      if (grown != TG_OK) {
        return grown;
      }
    }
    if (s->ahead && !last) {
      status = go_on(s, &o->sampling, n + 1);
    }
    if (status == TG_OK) {
      status = tg_fetch_wait(s->ctx, s->fetch[n % 2], &id);
    }
    if (status == TG_OK && id < 0) {
      return refuse_logits(s, start + n, error);
    }
    *passes = n;
    if (status == TG_OK && (!on_token(user, id) || stops(o, id) || last)) {
      return TG_OK;
    }
    if (status == TG_OK && !s->ahead) {
      status = go_on(s, &o->sampling, n + 1);
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
  if (!s->has_logits) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "session_generate: session: expected logits of a token fed last, got none "
                         "after %lld tokens",
                         (long long)s->length);
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
  const int64_t start = s->length, fits = s->capacity - start + 1;
  const int64_t wanted = options->max_new_tokens;
  int64_t passes = 0;
  tgi_session_bind(s, 1);
  status = generate(s, options, wanted > 0 && wanted < fits ? wanted : fits, on_token, user,
                    &passes, error);
  s->length = status == TG_OK ? start + passes : start;
  s->has_logits = s->has_logits && status != TG_OK; /* a refusal that came before any pass */
  return status;
}
