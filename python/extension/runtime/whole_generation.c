#include "whole_generation.h"

#include "core/clock.h"
#include "status_exception.h"

#include <stdlib.h>

/* Between two looks for an interrupt from the keyboard. */
#define PATIENCE 0.05

/* What the tokens come into. Python's lock is not held then. */
typedef struct receiver {
  const tgi_generation_settings *settings;
  int32_t *ids;
  tg_token_logprobs *logprobs; /* of each token; NULL: not wanted */
  int64_t count, room;
  double looked;         /* when the last look was */
  PyThreadState *python; /* to take the lock with */
  bool failed;           /* no memory, or an exception is set */
} receiver;

static bool make_room(receiver *r)
{
  if (r->count < r->room) {
    return true;
  }
  const int64_t room = r->room ? 2 * r->room : 256;
  int32_t *ids = realloc(r->ids, (size_t)room * sizeof *ids);
  r->ids = ids ? ids : r->ids;
  tg_token_logprobs *logprobs = ids && r->settings->wants_logprobs
                                    ? realloc(r->logprobs, (size_t)room * sizeof *logprobs)
                                    : NULL;
  r->logprobs = logprobs ? logprobs : r->logprobs;
  if (!ids || (r->settings->wants_logprobs && !logprobs)) {
    return false;
  }
  r->room = room;
  return true;
}

/* Whether the keyboard interrupted, or another signal's handler raised. */
static bool is_interrupted(receiver *r)
{
  const double now = tgi_clock();
  if (now - r->looked < PATIENCE) {
    return false;
  }
  r->looked = now;
  PyEval_RestoreThread(r->python);
  const bool interrupted = PyErr_CheckSignals() < 0;
  r->python = PyEval_SaveThread();
  return interrupted;
}

static bool receive(void *user, int32_t id)
{
  receiver *r = user;
  if (!make_room(r) || is_interrupted(r)) {
    r->failed = true;
    return false;
  }
  if (r->logprobs) {
    r->logprobs[r->count] = r->settings->logprobs;
  }
  r->ids[r->count++] = id;
  return true;
}

static PyObject *list_logprobs(const receiver *r)
{
  if (!r->settings->wants_logprobs) {
    return Py_NewRef(Py_None);
  }
  PyObject *list = PyList_New((Py_ssize_t)r->count);
  for (int64_t i = 0; list && i < r->count; i++) {
    PyObject *of_token = tgi_logprobs_object(r->ids[i], &r->logprobs[i]);
    if (!of_token || PyList_SetItem(list, (Py_ssize_t)i, of_token) < 0) {
      Py_CLEAR(list);
    }
  }
  return list;
}

static bool stopped(const receiver *r)
{
  bool found = false;
  for (int64_t i = 0; r->count > 0 && i < r->settings->options.num_stop_ids; i++) {
    found = found || r->settings->stop_ids[i] == r->ids[r->count - 1];
  }
  return found;
}

static PyObject *result(const receiver *r, double prompt, double tokens)
{
  PyObject *ids = tgi_ids_object(r->ids, r->count), *logprobs = ids ? list_logprobs(r) : NULL;
  if (!logprobs) {
    Py_XDECREF(ids);
    return NULL;
  }
  return Py_BuildValue("(NsNdd)", ids, stopped(r) ? "stop" : "length", logprobs, prompt, tokens);
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
  tg_status status =
      tg_session_feed(pooled->session, settings->prompt, settings->num_prompt, &error);
  const double fed = tgi_clock();
  if (status == TG_OK) {
    status = tg_session_generate(pooled->session, &settings->options, receive, &r, &error);
  }
  const double end = tgi_clock();
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
    value = result(&r, fed - start, end - fed);
  }
  free(r.ids);
  free(r.logprobs);
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
