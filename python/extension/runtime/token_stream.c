#include "token_stream.h"

#include "status_exception.h"

#include <stdlib.h>
#include <string.h>

typedef struct token_stream {
  PyObject ob_base;
  tgi_model_handle *handle;   /* kept alive */
  tgi_pooled_session *pooled; /* NULL: ended */
  tgi_generation_settings settings;
  int32_t *told;  /* prompt and tokens, for penalties: [capacity + 1] */
  float *changed; /* [vocab]: logits that penalties change */
  int64_t count;  /* tokens picked */
  int64_t most;
  tgi_stop_strings *stops;
  bool busy; /* a thread computes */
  const char *reason;
} token_stream;

static token_stream *stream_of(PyObject *self)
{
  return (token_stream *)(void *)self;
}

/* Gives the session back; memory is freed at once, not with the object. */
static void end(token_stream *s, const char *reason)
{
  if (s->pooled) {
    tgi_session_give_back(s->pooled);
    s->pooled = NULL;
    s->reason = reason;
    tgi_settings_free(&s->settings);
    tgi_stop_strings_destroy(s->stops);
    s->stops = NULL;
    free(s->told);
    free(s->changed);
    s->told = NULL;
    s->changed = NULL;
  }
}

static bool changes_logits(const tg_sampling *how)
{
  return how->num_logit_bias > 0 || how->presence_penalty != 0 || how->frequency_penalty != 0 ||
         (how->repetition_penalty != 0 && how->repetition_penalty != 1);
}

static int open_stream(token_stream *s)
{
  const int64_t most = s->handle->info.max_position_embeddings, prompt = s->settings.num_prompt;
  const int64_t wanted = s->settings.options.max_new_tokens;
  const bool all = wanted <= 0 || wanted > most - prompt;
  s->pooled = tgi_session_take(s->handle, all ? most : prompt + wanted);
  if (!s->pooled) {
    return -1;
  }
  const int64_t capacity = tg_session_capacity(s->pooled->session);
  const int64_t fits = capacity - prompt + 1;
  const size_t vocab = (size_t)s->handle->info.vocab_size;
  s->most = wanted > 0 && wanted < fits ? wanted : fits;
  s->told = malloc((size_t)(capacity + 1) * sizeof *s->told);
  s->changed =
      changes_logits(&s->settings.options.sampling) ? malloc(vocab * sizeof *s->changed) : NULL;
  if (!s->told || (changes_logits(&s->settings.options.sampling) && !s->changed)) {
    end(s, "error");
    PyErr_NoMemory();
    return -1;
  }
  if (prompt > capacity) {
    end(s, "error");
    PyErr_Format(PyExc_ValueError,
                 "stream: ids: expected at most %lld tokens (half of the free memory), got %lld",
                 (long long)capacity, (long long)prompt);
    return -1;
  }
  tg_error error = {0};
  const tg_status status = tgi_settings_open_stops(&s->settings, &s->stops, &error);
  if (status != TG_OK) {
    end(s, "error");
    return tgi_raise_status(status, error.text);
  }
  memcpy(s->told, s->settings.prompt, (size_t)prompt * sizeof *s->told);
  return 0;
}

/* The next token, without Python's lock. */
static tg_status pick(token_stream *s, int32_t *id, tg_error *error)
{
  tg_session *session = s->pooled->session;
  const int64_t length = s->settings.num_prompt + s->count;
  tg_status status =
      s->count == 0 ? tg_session_feed(session, s->settings.prompt, s->settings.num_prompt, error)
                    : tg_session_feed(session, s->told + length - 1, 1, error);
  if (status != TG_OK) {
    return status;
  }
  const tg_sampling *how = &s->settings.options.sampling;
  const int32_t vocab = s->handle->info.vocab_size;
  const float *given = tg_session_logits(session), *logits = given;
  if (s->changed) {
    memcpy(s->changed, given, (size_t)vocab * sizeof *s->changed);
    status = tg_adjust_logits(s->changed, vocab, how, s->told, length, s->count, error);
    logits = s->changed;
  }
  status =
      status ? status
             : tg_sample_token(logits, vocab, how, (uint64_t)tg_session_length(session), id, error);
  if (status == TG_OK && s->settings.wants_logprobs) {
    status = tg_compute_logprobs(given, vocab, *id, &s->settings.logprobs, error);
  }
  return status;
}

static PyObject *next(PyObject *self)
{
  token_stream *s = stream_of(self);
  if (s->busy) {
    PyErr_SetString(PyExc_ValueError, "stream: expected one thread at a time, got a second one");
    return NULL;
  }
  /* list(stream) runs no code of Python's, which would look for Ctrl-C. */
  if (!s->pooled || PyErr_CheckSignals() < 0) {
    return NULL;
  }
  int32_t id = 0;
  tg_error error = {0};
  tg_status status;
  s->busy = true;
  Py_BEGIN_ALLOW_THREADS status = pick(s, &id, &error);
  Py_END_ALLOW_THREADS s->busy = false;
  if (status != TG_OK) {
    end(s, "error");
    tgi_raise_status(status, error.text);
    return NULL;
  }
  PyObject *value = s->settings.wants_logprobs ? tgi_logprobs_object(id, &s->settings.logprobs)
                                               : PyLong_FromLong(id);
  s->told[s->settings.num_prompt + s->count++] = id;
  const bool stops = tgi_settings_text_ends(&s->settings, s->stops, id, &error) ||
                     tgi_settings_id_ends(&s->settings, id);
  if (error.status != TG_OK) {
    Py_CLEAR(value);
    tgi_raise_status(error.status, error.text);
  }
  if (!value || stops || s->count == s->most) {
    end(s, !value ? "error" : stops ? "stop" : "length");
  }
  return value;
}

static PyObject *close_stream(PyObject *self, PyObject *unused)
{
  (void)unused;
  token_stream *s = stream_of(self);
  if (s->busy) {
    PyErr_SetString(PyExc_ValueError, "stream: close: expected no thread that computes, got one");
    return NULL;
  }
  end(s, "cancelled");
  return Py_NewRef(Py_None);
}

static PyObject *get_reason(PyObject *self, void *unused)
{
  (void)unused;
  const char *reason = stream_of(self)->reason;
  return reason ? PyUnicode_FromString(reason) : Py_NewRef(Py_None);
}

static PyObject *iterate(PyObject *self)
{
  return Py_NewRef(self);
}

static void dealloc(PyObject *self)
{
  token_stream *s = stream_of(self);
  end(s, "cancelled");
  tgi_settings_free(&s->settings);
  Py_XDECREF((PyObject *)s->handle);
  tgi_object_free(self);
}

PyObject *tgi_model_stream(PyObject *self, PyObject *args, PyObject *named)
{
  tgi_model_handle *handle = (tgi_model_handle *)(void *)self;
  token_stream *s = tgi_object_new(handle->state->stream);
  if (!s) {
    return NULL;
  }
  s->handle = (tgi_model_handle *)(void *)Py_NewRef(self);
  if (tgi_settings_read(handle, args, named, &s->settings) < 0 || open_stream(s) < 0) {
    Py_DECREF((PyObject *)s);
    return NULL;
  }
  return (PyObject *)s;
}

static PyMethodDef methods[] = {
    TGI_METHOD("close", close_stream, METH_NOARGS,
               "close()\n--\n\nEnds the generation; no token comes any more."),
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef members[] = {
    {"finish_reason", get_reason, NULL,
     "\"stop\", \"length\", \"cancelled\" or \"error\"; None while tokens come.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)(uintptr_t)dealloc},
    {Py_tp_iter, (void *)(uintptr_t)iterate},
    {Py_tp_iternext, (void *)(uintptr_t)next},
    {Py_tp_methods, methods},
    {Py_tp_getset, members},
    {Py_tp_doc, "The tokens of a generation, one by one."},
    {0, NULL},
};

static PyType_Spec spec = {.name = "tegula._runtime.TokenStream",
                           .basicsize = sizeof(token_stream),
                           .flags = Py_TPFLAGS_DEFAULT | 1 << 7, /* no instances by calls */
                           .slots = slots};

PyObject *tgi_stream_make_type(PyObject *module)
{
  return PyType_FromModuleAndSpec(module, &spec, NULL);
}
