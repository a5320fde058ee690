#include "whole_generation.h"

#include "core/machine/clock.h"
#include "status_exception.h"
#include "token_list.h"

/* What the tokens come into. Python's lock is not held then. */
typedef struct receiver {
  const tgi_generation_settings *settings;
  tgi_token_list tokens;
  double looked;         /* of tgi_is_interrupted */
  PyThreadState *python; /* likewise */
  bool failed;           /* no memory, or an exception is set */
  tgi_stop_strings *stops;
  tg_error error; /* of the stop texts */
  bool met;       /* one of them */
} receiver;

static bool receive(void *user, int32_t id)
{
  receiver *r = user;
  const tg_token_logprobs *logprobs = r->settings->wants_logprobs ? &r->settings->logprobs : NULL;
  r->failed =
      tgi_is_interrupted(&r->looked, &r->python) || !tgi_token_list_add(&r->tokens, id, logprobs);
  r->met = !r->failed && tgi_settings_text_ends(r->settings, r->stops, id, &r->error);
  return !r->failed && !r->met && r->error.status == TG_OK;
}

static const char *finish_reason(const receiver *r)
{
  const int64_t count = r->tokens.count;
  const bool ends = count > 0 && tgi_settings_id_ends(r->settings, r->tokens.ids[count - 1]);
  return r->met || ends ? "stop" : "length";
}

static PyObject *generate(tgi_model_handle *handle, tgi_generation_settings *settings)
{
  const int64_t wanted = settings->options.max_new_tokens;
  const int64_t most = handle->info.max_position_embeddings;
  const bool all = wanted <= 0 || wanted > most - settings->num_prompt;
  tgi_pooled_session *pooled = tgi_session_take(handle, all ? most : settings->num_prompt + wanted);
  if (!pooled) {
    return NULL;
  }
  receiver r = {.settings = settings};
  settings->options.logprobs = settings->wants_logprobs ? &settings->logprobs : NULL;
  tg_error error = {0};
  r.python = PyEval_SaveThread();
  const double start = r.looked = tgi_clock();
  tg_status status = tgi_settings_open_stops(settings, &r.stops, &error);
  status = status
               ? status
               : tg_session_feed(pooled->session, settings->prompt, settings->num_prompt, &error);
  const double fed = tgi_clock();
  if (status == TG_OK) {
    status = tg_session_generate(pooled->session, &settings->options, receive, &r, &error);
  }
  if (status == TG_OK && r.error.status != TG_OK) {
    error = r.error;
    status = error.status;
  }
  const double end = tgi_clock();
  tgi_stop_strings_destroy(r.stops);
  PyEval_RestoreThread(r.python);
  tgi_session_give_back(pooled);
  PyObject *value = NULL;
  if (r.failed) {
    if (!PyErr_Occurred()) {
      PyErr_NoMemory();
    }
  } else if (status != TG_OK) {
    tgi_raise_status(status, error.text);
  } else {
    value = tgi_token_list_object(&r.tokens, settings->wants_logprobs, finish_reason(&r),
                                  fed - start, end - fed);
  }
  tgi_token_list_free(&r.tokens);
  return value;
}

PyObject *tgi_model_generate(PyObject *self, PyObject *args, PyObject *named)
{
  tgi_model_handle *handle = (tgi_model_handle *)(void *)self;
  tgi_generation_settings settings;
  if (tgi_settings_read(handle, args, named, &settings) < 0) {
    return NULL;
  }
  PyObject *value = generate(handle, &settings);
  tgi_settings_free(&settings);
  return value;
}
