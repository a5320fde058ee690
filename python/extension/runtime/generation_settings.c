#include "generation_settings.h"

#include "tokenizer_handle.h"

#include <stdlib.h>
#include <string.h>

static int read_stop(PyObject *list, tgi_generation_settings *s)
{
  const Py_ssize_t count = PyList_Size(list);
  s->stop_ids = malloc(((size_t)count + 1) * sizeof *s->stop_ids);
  if (!s->stop_ids) {
    PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    const long id = PyLong_AsLong(PyList_GetItem(list, i));
    if (id == -1 && PyErr_Occurred()) {
      return -1;
    }
    if (id < INT32_MIN || id > INT32_MAX) {
      PyErr_Format(PyExc_ValueError, "generate: stop[%zd]: expected an id, got %ld", i, id);
      return -1;
    }
    s->stop_ids[i] = (int32_t)id;
  }
  s->options.stop_ids = s->stop_ids;
  s->options.num_stop_ids = count;
  return 0;
}

static int read_stop_texts(const tgi_model_handle *handle, PyObject *texts, PyObject *tokenizer,
                           tgi_generation_settings *s)
{
  const Py_ssize_t count = PyTuple_Size(texts);
  if (count == 0) {
    return 0;
  }
  if (tgi_tokenizer_of(handle->state, tokenizer, &s->tokenizer) < 0) {
    return -1;
  }
  s->stop_texts = malloc((size_t)count * sizeof *s->stop_texts);
  if (!s->stop_texts) {
    PyErr_NoMemory();
    return -1;
  }
  s->stop_objects = Py_NewRef(texts);
  s->tokenizer_object = Py_NewRef(tokenizer);
  for (Py_ssize_t i = 0; i < count; i++) {
    Py_ssize_t size;
    s->stop_texts[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(texts, i), &size);
    if (!s->stop_texts[i]) {
      return -1;
    }
    if (size == 0 || (size_t)size != strlen(s->stop_texts[i])) {
      PyErr_Format(PyExc_ValueError,
                   "generate: stop: expected a text that is not empty and has no "
                   "zero byte, got %R",
                   PyTuple_GetItem(texts, i));
      return -1;
    }
  }
  s->num_stop_texts = count;
  return 0;
}

static int read_bias(PyObject *list, tgi_generation_settings *s)
{
  const Py_ssize_t count = PyList_Size(list);
  s->bias = malloc(((size_t)count + 1) * sizeof *s->bias);
  if (!s->bias) {
    PyErr_NoMemory();
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    int id;
    double value;
    if (!PyArg_ParseTuple(PyList_GetItem(list, i), "id", &id, &value)) {
      return -1;
    }
    s->bias[i] = (tg_logit_bias){.id = id, .value = (float)value};
  }
  s->options.sampling.logit_bias = s->bias;
  s->options.sampling.num_logit_bias = count;
  return 0;
}

static int read_prompt(const tgi_model_handle *handle, PyObject *object, tgi_generation_settings *s)
{
  tgi_id_rows rows;
  if (tgi_model_read_ids(handle, "generate", object, &rows) < 0) {
    return -1;
  }
  s->prompt = rows.ids;
  s->num_rows = rows.rows;
  s->num_prompt = rows.length;
  if (s->num_prompt > handle->info.max_position_embeddings) {
    PyErr_Format(PyExc_ValueError,
                 "generate: ids: expected at most %d tokens (the model's positions), got %lld",
                 (int)handle->info.max_position_embeddings, (long long)s->num_prompt);
    return -1;
  }
  return 0;
}

static int read_all(const tgi_model_handle *handle, PyObject *args, PyObject *named,
                    tgi_generation_settings *s)
{
  static char *keys[] = {"prompt",
                         "max_new_tokens",
                         "temperature",
                         "top_k",
                         "top_p",
                         "min_p",
                         "seed",
                         "repetition_penalty",
                         "presence_penalty",
                         "frequency_penalty",
                         "penalty_window",
                         "stop",
                         "stop_texts",
                         "tokenizer",
                         "bias",
                         "logprobs",
                         NULL};
  PyObject *prompt, *stop, *stop_texts, *tokenizer, *bias;
  tg_sampling *how = &s->options.sampling;
  long long max_new_tokens;
  unsigned long long seed;
  int logprobs;
  if (!PyArg_ParseTupleAndKeywords(
          args, named, "O$LfiffKfffiO!O!OO!i:generate", keys, &prompt, &max_new_tokens,
          &how->temperature, &how->top_k, &how->top_p, &how->min_p, &seed, &how->repetition_penalty,
          &how->presence_penalty, &how->frequency_penalty, &how->penalty_window, &PyList_Type,
          &stop, &PyTuple_Type, &stop_texts, &tokenizer, &PyList_Type, &bias, &logprobs)) {
    return -1;
  }
  how->seed = seed;
  s->options.max_new_tokens = max_new_tokens;
  s->wants_logprobs = logprobs >= 0;
  s->logprobs.num_top = logprobs;
  if (logprobs > TG_MAX_TOP_LOGPROBS) {
    PyErr_Format(PyExc_ValueError, "generate: logprobs: expected 0 to %d, got %d",
                 TG_MAX_TOP_LOGPROBS, logprobs);
    return -1;
  }
  return read_stop(stop, s) || read_stop_texts(handle, stop_texts, tokenizer, s) ||
                 read_bias(bias, s) || read_prompt(handle, prompt, s)
             ? -1
             : 0;
}

int tgi_settings_read(const tgi_model_handle *handle, PyObject *args, PyObject *named,
                      tgi_generation_settings *out)
{
  *out = (tgi_generation_settings){.wants_logprobs = false};
  const int status = read_all(handle, args, named, out);
  if (status < 0) {
    tgi_settings_free(out);
  }
  return status;
}

void tgi_settings_free(tgi_generation_settings *s)
{
  free(s->prompt);
  free(s->stop_ids);
  free(s->stop_texts);
  Py_XDECREF(s->stop_objects);
  Py_XDECREF(s->tokenizer_object);
  free(s->bias);
  *s = (tgi_generation_settings){.wants_logprobs = false};
}

tg_status tgi_settings_open_stops(const tgi_generation_settings *s, tgi_stop_strings **out,
                                  tg_error *error)
{
  *out = NULL;
  return s->num_stop_texts
             ? tgi_stop_strings_create(s->stop_texts, (size_t)s->num_stop_texts, out, error)
             : TG_OK;
}

bool tgi_settings_text_ends(const tgi_generation_settings *s, tgi_stop_strings *stops, int32_t id,
                            tg_error *error)
{
  if (!stops) {
    return false;
  }
  const tg_token token = tg_tokenizer_piece(s->tokenizer, id);
  tgi_ready_bytes ready;
  const tg_status status =
      tgi_stop_strings_push(stops, token.size ? token.bytes : "", token.size, &ready, error);
  return status == TG_OK && tgi_stop_strings_met(stops) >= 0;
}

bool tgi_settings_id_ends(const tgi_generation_settings *s, int32_t id)
{
  for (int64_t i = 0; i < s->options.num_stop_ids; i++) {
    if (s->stop_ids[i] == id) {
      return true;
    }
  }
  return false;
}

PyObject *tgi_logprobs_object(int32_t id, const tg_token_logprobs *logprobs)
{
  PyObject *top = PyList_New(0);
  for (int32_t i = 0; top && i < logprobs->num_top && logprobs->top[i].id >= 0; i++) {
    PyObject *pair =
        Py_BuildValue("(id)", (int)logprobs->top[i].id, (double)logprobs->top[i].logprob);
    if (!pair || PyList_Append(top, pair) < 0) {
      Py_CLEAR(top);
    }
    Py_XDECREF(pair);
  }
  return top ? Py_BuildValue("(idN)", (int)id, (double)logprobs->logprob, top) : NULL;
}
