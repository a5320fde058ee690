#include "batch_generation.h"

#include "core/machine/clock.h"
#include "status_exception.h"
#include "token_list.h"

#include <stdlib.h>
#include <tegula/engine.h>

typedef struct batch batch;

/* A request of the engine. */
typedef struct request_row {
  batch *all;
  tgi_token_list tokens;
  tg_token_logprobs logprobs; /* of the token that comes */
  int64_t length;             /* of the prompt */
  uint64_t seed;
  tgi_stop_strings *stops;
  tg_finish finish;
  double first, last; /* when its tokens came */
} request_row;

struct batch {
  const tgi_generation_settings *settings;
  request_row *rows;
  tg_engine *engine;
  tg_status status;
  tg_error error; /* of the first request that failed */
  bool failed;    /* no memory for a token */
};

static bool receive(void *user, const tg_event *event)
{
  request_row *row = user;
  batch *all = row->all;
  if (event->finish != TG_FINISH_NONE) {
    row->finish = event->finish == TG_FINISH_CALLER ? row->finish : event->finish;
    if (event->finish == TG_FINISH_FAILED && all->status == TG_OK) {
      all->error = *event->error;
      all->status = event->error->status;
    }
    return true;
  }
  row->last = tgi_clock();
  row->first = row->tokens.count ? row->first : row->last;
  all->failed =
      all->failed || !tgi_token_list_add(&row->tokens, event->id,
                                         all->settings->wants_logprobs ? &row->logprobs : NULL);
  tg_error error = {0};
  const bool met =
      !all->failed && tgi_settings_text_ends(all->settings, row->stops, event->id, &error);
  if (error.status != TG_OK && all->status == TG_OK) {
    all->error = error;
    all->status = error.status;
  }
  row->finish = met ? TG_FINISH_STOP : row->finish;
  return !all->failed && !met && all->status == TG_OK;
}

static tg_status open_engine(const tgi_model_handle *handle, batch *b, tg_error *error)
{
  const tgi_generation_settings *s = b->settings;
  const int64_t most = handle->info.max_position_embeddings;
  const int64_t wanted = s->num_prompt + s->options.max_new_tokens;
  const int64_t tokens = wanted < most ? wanted : most;
  const int64_t rows = s->num_rows < TG_ENGINE_MAX_BATCH ? s->num_rows : TG_ENGINE_MAX_BATCH;
  const tg_engine_options options = {.batch = (int32_t)rows,
                                     .max_tokens = (int32_t)tokens,
                                     .num_threads = handle->num_threads,
                                     .backend = handle->backend,
                                     .device_index = handle->device_index,
                                     .cache_dtype = handle->cache_dtype};
  return tg_engine_create(handle->model, &options, &b->engine, error);
}

static tg_status submit(batch *b, int64_t index, tg_error *error)
{
  const tgi_generation_settings *s = b->settings;
  request_row *row = &b->rows[index];
  tg_request request = {.ids = s->prompt + index * s->num_prompt,
                        .count = row->length,
                        .how = s->options,
                        .on_event = receive,
                        .user = row};
  int64_t number;
  row->all = b;
  row->logprobs = s->logprobs;
  request.how.sampling.seed = row->seed;
  request.how.logprobs = s->wants_logprobs ? &row->logprobs : NULL;
  const tg_status status = tgi_settings_open_stops(s, &row->stops, error);
  return status ? status : tg_engine_submit(b->engine, &request, &number, error);
}

/* All steps, without Python's lock. True if a signal's handler raised. */
static bool run(const tgi_model_handle *handle, batch *b, PyThreadState **python)
{
  double looked = tgi_clock();
  int64_t left = 1;
  bool interrupted = false;
  b->status = open_engine(handle, b, &b->error);
  for (int64_t i = 0; i < b->settings->num_rows && b->status == TG_OK; i++) {
    b->status = submit(b, i, &b->error);
  }
  while (left > 0 && b->status == TG_OK && !b->failed && !interrupted) {
    tg_error error = {0};
    const tg_status status = tg_engine_step(b->engine, &left, &error);
    if (status != TG_OK && b->status == TG_OK) {
      b->status = status;
      b->error = error;
    }
    interrupted = tgi_is_interrupted(&looked, python);
  }
  tg_engine_destroy(b->engine);
  return interrupted;
}

static PyObject *list_rows(const batch *b, double start)
{
  PyObject *list = PyList_New((Py_ssize_t)b->settings->num_rows);
  for (int64_t i = 0; list && i < b->settings->num_rows; i++) {
    const request_row *row = &b->rows[i];
    PyObject *one = tgi_token_list_object(&row->tokens, b->settings->wants_logprobs,
                                          row->finish == TG_FINISH_STOP ? "stop" : "length",
                                          row->first - start, row->last - row->first);
    if (!one || PyList_SetItem(list, (Py_ssize_t)i, one) < 0) {
      Py_CLEAR(list);
    }
  }
  return list;
}

/* Seeds, and lengths of the prompts, of which the shorter ones are padded. */
static int read_rows(PyObject *seeds, PyObject *lengths, batch *b)
{
  const tgi_generation_settings *s = b->settings;
  if (PyList_Size(seeds) != s->num_rows || PyList_Size(lengths) != s->num_rows) {
    PyErr_Format(PyExc_ValueError, "generate: seeds, lengths: expected %lld each, got %zd and %zd",
                 (long long)s->num_rows, PyList_Size(seeds), PyList_Size(lengths));
    return -1;
  }
  for (int64_t i = 0; i < s->num_rows; i++) {
    b->rows[i].seed = PyLong_AsUnsignedLongLong(PyList_GetItem(seeds, (Py_ssize_t)i));
    b->rows[i].length = PyLong_AsLongLong(PyList_GetItem(lengths, (Py_ssize_t)i));
    if (!PyErr_Occurred() && (b->rows[i].length < 1 || b->rows[i].length > s->num_prompt)) {
      PyErr_Format(PyExc_ValueError, "generate: lengths[%lld]: expected 1 to %lld, got %lld",
                   (long long)i, (long long)s->num_prompt, (long long)b->rows[i].length);
    }
  }
  return PyErr_Occurred() ? -1 : 0;
}

static PyObject *generate(const tgi_model_handle *handle, const tgi_generation_settings *settings,
                          PyObject *seeds, PyObject *lengths)
{
  batch b = {.settings = settings};
  b.rows = calloc((size_t)settings->num_rows, sizeof *b.rows);
  if (!b.rows) {
    return PyErr_NoMemory();
  }
  PyObject *value = NULL;
  if (read_rows(seeds, lengths, &b) == 0) {
    PyThreadState *python = PyEval_SaveThread();
    const double start = tgi_clock();
    const bool interrupted = run(handle, &b, &python);
    PyEval_RestoreThread(python);
    if (!interrupted && b.failed) {
      PyErr_NoMemory();
    } else if (!interrupted && b.status != TG_OK) {
      tgi_raise_status(b.status, b.error.text);
    } else if (!interrupted) {
      value = list_rows(&b, start);
    }
  }
  for (int64_t i = 0; i < settings->num_rows; i++) {
    tgi_token_list_free(&b.rows[i].tokens);
    tgi_stop_strings_destroy(b.rows[i].stops);
  }
  free(b.rows);
  return value;
}

PyObject *tgi_model_generate_batch(PyObject *self, PyObject *args, PyObject *named)
{
  const tgi_model_handle *handle = (tgi_model_handle *)(void *)self;
  PyObject *rows, *seeds, *lengths;
  if (!PyArg_ParseTuple(args, "OO!O!:generate_batch", &rows, &PyList_Type, &seeds, &PyList_Type,
                        &lengths)) {
    return NULL;
  }
  PyObject *prompt = PyTuple_Pack(1, rows);
  tgi_generation_settings settings;
  const int status = prompt ? tgi_settings_read(handle, prompt, named, &settings) : -1;
  Py_XDECREF(prompt);
  if (status < 0) {
    return NULL;
  }
  PyObject *value = generate(handle, &settings, seeds, lengths);
  tgi_settings_free(&settings);
  return value;
}
