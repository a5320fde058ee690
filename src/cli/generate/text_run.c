#include "text_run.h"

#include "cli/interrupt.h"
#include "core/error_record.h"
#include "core/growing.h"
#include "core/machine/clock.h"
#include <stdlib.h>

static tg_status refuse_memory(tg_error *error)
{
  return tgi_error_set(error, TG_NO_MEMORY, "text: expected memory for another token, got none");
}

tg_status tgi_text_run_prompt(tgi_text_run *r, tg_error *error)
{
  tg_session *session = r->generator->session;
  const double start = tgi_clock();
  tg_status status = tg_session_truncate(session, 0);
  status = status ? status : tg_session_feed(session, r->prompt->ids, r->prompt->count, error);
  r->prompt_seconds = tgi_clock() - start;
  return status;
}

static void end(tgi_text_run *r, tgi_finish finish, const char *reason)
{
  if (!r->reason) {
    r->finish = finish;
    r->reason = reason;
  }
}

static tg_status keep_token(tgi_text_run *r, int32_t id)
{
  int32_t *ids = tgi_grow(r->ids, &r->ids_room, r->num_ids + 1, sizeof *ids);
  r->ids = ids ? ids : r->ids;
  tg_token_logprobs *all = r->logprobs;
  if (r->with_logprobs) {
    all = tgi_grow(r->logprobs, &r->logprobs_room, r->num_ids + 1, sizeof *all);
    r->logprobs = all ? all : r->logprobs;
  }
  if (!ids || (r->with_logprobs && !all)) {
    return refuse_memory(r->error);
  }
  if (r->with_logprobs) {
    all[r->num_ids] = r->latest;
  }
  ids[r->num_ids++] = id;
  return TG_OK;
}

/* Decided bytes become text; the sink receives it. */
static tg_status add_text(tgi_text_run *r, int32_t id, tgi_ready_bytes ready, bool last)
{
  const size_t room = TGI_UTF8_STREAM_BOUND(ready.size) + 3;
  char *text = tgi_grow(r->text, &r->text_room, r->size + room, 1);
  if (!text) {
    return refuse_memory(r->error);
  }
  r->text = text;
  size_t size = tgi_utf8_stream_push(&r->stream, ready.bytes, ready.size, text + r->size);
  if (last) {
    size += tgi_utf8_stream_finish(&r->stream, text + r->size + size);
  }
  if (r->sink && !r->sink(r->user, id, text + r->size, size)) {
    end(r, TGI_FINISH_BROKEN, "the output is closed");
  }
  r->size += size;
  return TG_OK;
}

static tg_status add_token(tgi_text_run *r, int32_t id)
{
  tgi_ready_bytes ready = {"", 0};
  tg_status status = keep_token(r, id);
  if (status == TG_OK && r->generator->tokenizer) {
    tgi_stop_strings *stops = r->stops;
    const tg_token token = tg_tokenizer_piece(r->generator->tokenizer, id);
    const size_t size = token.kind == TG_TOKEN_SPECIAL ? 0 : token.size;
    status = tgi_stop_strings_push(stops, token.bytes, size, &ready, r->error);
    if (tgi_stop_strings_met(stops) >= 0) {
      end(r, TGI_FINISH_STOP, "stop string");
    }
  }
  return status ? status : add_text(r, id, ready, false);
}

static bool is_end(const tg_generate_options *how, int32_t id)
{
  for (int64_t i = 0; i < how->num_stop_ids; i++) {
    if (how->stop_ids[i] == id) {
      return true;
    }
  }
  return false;
}

bool tgi_text_run_take(void *run, int32_t id)
{
  tgi_text_run *r = run;
  if (is_end(&r->how, id)) {
    end(r, TGI_FINISH_STOP, "end of text");
    return false;
  }
  r->status = add_token(r, id);
  if (tgi_interrupted()) {
    end(r, TGI_FINISH_BROKEN, "interrupted");
  }
  if ((int64_t)r->num_ids == r->numbers->max_tokens) {
    end(r, TGI_FINISH_LENGTH,
        r->generator->o->config_limits ? "max_new_tokens of generation_config.json"
                                       : "--max-tokens");
  }
  return r->status == TG_OK && !r->reason;
}

void tgi_text_run_begin(tgi_text_run *r, tg_error *error)
{
  const tgi_generator *g = r->generator;
  r->error = error;
  r->how = tgi_generation_how(g->o, r->numbers, &g->bias, g->model);
  r->latest.num_top = r->num_top;
  r->how.logprobs = r->with_logprobs ? &r->latest : NULL;
  r->stops = r->stops ? r->stops : g->stops;
  tgi_stop_strings_reset(r->stops);
}

tg_status tgi_text_run_end(tgi_text_run *r)
{
  end(r, TGI_FINISH_LENGTH, "the context is full");
  return r->status ? r->status : add_text(r, -1, tgi_stop_strings_finish(r->stops), true);
}

tg_status tgi_text_run_generate(tgi_text_run *r, tg_error *error)
{
  tg_session *session = r->generator->session;
  const int64_t before = tg_session_length(session);
  tgi_text_run_begin(r, error);
  const double start = tgi_clock();
  const tg_status status = tg_session_generate(session, &r->how, tgi_text_run_take, r, error);
  r->seconds = tgi_clock() - start;
  r->passes = tg_session_length(session) - before;
  return status ? status : tgi_text_run_end(r);
}

void tgi_text_run_free(tgi_text_run *r)
{
  free(r->ids);
  free(r->logprobs);
  free(r->text);
  r->ids = NULL;
  r->logprobs = NULL;
  r->text = NULL;
}
