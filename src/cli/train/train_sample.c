#include "train_sample.h"

#include "cli/interrupt.h"
#include "core/error_record.h"
#include "files/utf8_stream.h"
#include "model/weights/weights.h"

#include <stdlib.h>
#include <string.h>

enum { kSampleTokens = 64 };

/* The token that begins a text, or the one that ends one; -1: the model has none. */
static int32_t first_token(const tgi_config *c)
{
  const int32_t bos = c->bos_token_id;
  if (bos >= 0 && bos < c->vocab_size) {
    return bos;
  }
  const int32_t eos = c->num_eos_token_ids > 0 ? c->eos_token_ids[0] : -1;
  return eos < c->vocab_size ? eos : -1;
}

static tg_status start_text(tgi_train_run *r, tg_error *error)
{
  const int32_t first = first_token(&r->model->config);
  if (first < 0) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "--sample-prompt: expected TEXT (the model has no token that begins a "
                         "text), got none");
  }
  r->sample_prompt.ids = malloc(sizeof *r->sample_prompt.ids);
  if (!r->sample_prompt.ids) {
    return tgi_error_set(error, TG_NO_MEMORY, "--sample-prompt: expected memory, got none");
  }
  r->sample_prompt.ids[0] = first;
  r->sample_prompt.count = 1;
  return TG_OK;
}

tg_status tgi_train_sample_prepare(tgi_train_run *r, tg_error *error)
{
  if (r->o.sample_every == 0) {
    return TG_OK;
  }
  if (!r->o.sample_prompt) {
    return start_text(r, error);
  }
  const tg_status status = tgi_prompt_encode(r->tokenizer, r->o.sample_prompt,
                                             strlen(r->o.sample_prompt), &r->sample_prompt, error);
  const int32_t positions = r->model->config.max_position_embeddings;
  if (status == TG_OK && r->sample_prompt.count >= positions) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "--sample-prompt: expected below %d tokens (the model's positions), got "
                         "%lld",
                         positions, (long long)r->sample_prompt.count);
  }
  return status;
}

typedef struct sample {
  const int32_t *stops;
  int64_t num_stops;
  int32_t *ids; /* the prompt's, then those of the text */
  int64_t count;
} sample;

/* The tg_token_callback: keeps a token unless it ends the text. */
static bool take_token(void *user, int32_t id)
{
  sample *s = user;
  for (int64_t i = 0; i < s->num_stops; i++) {
    if (s->stops[i] == id) {
      return false;
    }
  }
  s->ids[s->count++] = id;
  return !tgi_interrupted();
}

static tg_status generate(const tgi_train_run *r, sample *s, tg_error *error)
{
  const tg_generation_config c = tg_model_get_generation_config(r->model);
  const int32_t positions = r->model->config.max_position_embeddings;
  const int64_t wanted = s->count + kSampleTokens;
  const tg_session_options options = {
      .max_tokens = wanted < positions ? (int32_t)wanted : positions, .num_threads = r->o.threads};
  s->stops = tg_model_eos_token_ids(r->model, &s->num_stops);
  const tg_generate_options how = {.sampling = {.temperature = c.temperature,
                                                .top_k = c.top_k,
                                                .top_p = c.top_p,
                                                .min_p = c.min_p,
                                                .seed = (uint64_t)r->o.seed,
                                                .repetition_penalty = c.repetition_penalty},
                                   .max_new_tokens = kSampleTokens,
                                   .stop_ids = s->stops,
                                   .num_stop_ids = s->num_stops};
  tg_session *session = NULL;
  tg_status status = tg_session_create(r->model, &options, &session, error);
  status = status ? status : tg_session_feed(session, s->ids, s->count, error);
  status = status ? status : tg_session_generate(session, &how, take_token, s, error);
  tg_session_destroy(session);
  return status;
}

/* The text of the ids, *bytes_of_text of valid UTF-8; *text is to be freed. */
static tg_status decode(const tgi_train_run *r, const sample *s, char **text, size_t *bytes_of_text,
                        tg_error *error)
{
  size_t size = 0;
  const size_t count = (size_t)s->count;
  *text = NULL;
  tg_status status = tg_tokenizer_decode(r->tokenizer, s->ids, count, TG_TOKENIZER_SKIP_SPECIAL,
                                         NULL, 0, &size, error);
  if (status != TG_OK) {
    return status;
  }
  char *bytes = malloc(size + 1);
  *text = malloc(TGI_UTF8_STREAM_BOUND(size) + 4);
  status = bytes && *text
               ? tg_tokenizer_decode(r->tokenizer, s->ids, count, TG_TOKENIZER_SKIP_SPECIAL, bytes,
                                     size, &size, error)
               : tgi_error_set(error, TG_NO_MEMORY, "sample: expected memory, got none");
  if (status == TG_OK) {
    tgi_utf8_stream stream = {0};
    size_t used = tgi_utf8_stream_push(&stream, bytes, size, *text);
    used += tgi_utf8_stream_finish(&stream, *text + used);
    (*text)[used] = '\0';
    *bytes_of_text = used;
  }
  free(bytes);
  return status;
}

/* Control characters, C0 and C1 (two bytes in UTF-8), become spaces: a terminal would obey them. */
static void remove_controls(char *text, size_t size)
{
  for (size_t i = 0; i < size; i++) {
    const unsigned char c = (unsigned char)text[i];
    const unsigned char next = i + 1 < size ? (unsigned char)text[i + 1] : 0;
    if (c < ' ' || c == 127) {
      text[i] = ' ';
    } else if (c == 0xc2 && next >= 0x80 && next < 0xa0) {
      text[i] = text[i + 1] = ' ';
    }
  }
}

/* The log has the text as it is. */
static void show(tgi_train_run *r, char *text, size_t size)
{
  const long long step = (long long)tg_trainer_steps(r->trainer);
  json_t *line = tgi_train_log_line("sample");
  json_object_set_new(line, "step", json_integer(step));
  json_object_set_new(line, "text", json_stringn(text, size));
  tgi_train_log_write(&r->log, line);
  remove_controls(text, size);
  tgi_progress_say(&r->progress, "step %lld | sample: %s", step, text);
}

tg_status tgi_train_sample(tgi_train_run *r, tg_error *error)
{
  sample s = {.count = r->sample_prompt.count};
  s.ids = malloc((size_t)(s.count + kSampleTokens) * sizeof *s.ids);
  if (!s.ids) {
    return tgi_error_set(error, TG_NO_MEMORY, "sample: expected memory, got none");
  }
  memcpy(s.ids, r->sample_prompt.ids, (size_t)s.count * sizeof *s.ids);
  char *text = NULL;
  size_t size = 0;
  tg_status status = tg_trainer_sync(r->trainer, error);
  status = status ? status : generate(r, &s, error);
  status = status ? status : decode(r, &s, &text, &size, error);
  if (status == TG_OK) {
    show(r, text, size);
  }
  free(text);
  free(s.ids);
  return status;
}
