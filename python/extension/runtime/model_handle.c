/* The handle of a model: making it, and logits of whole texts. */
#include "model_handle.h"

#include "batch_generation.h"
#include "model_contents.h"
#include "status_exception.h"
#include "tegula/device.h"
#include "token_stream.h"
#include "whole_generation.h"

#include <stdlib.h>

static tgi_model_handle *handle_of(PyObject *self)
{
  return (tgi_model_handle *)(void *)self;
}

static void dealloc(PyObject *self)
{
  tgi_model_handle *handle = handle_of(self);
  tgi_sessions_free(handle);
  tg_model_destroy(handle->model);
  Py_XDECREF(handle->module);
  tgi_object_free(self);
}

/* Where the weights come from: exactly one of the three. */
typedef struct source {
  const char *directory, *preset, *config;
  int vocab_size;
  unsigned long long seed;
  tg_dtype dtype;
} source;

static tg_status make_model(const source *from, tg_model **out, tg_error *error)
{
  return from->directory ? tg_model_load(from->directory, from->dtype, out, error)
         : from->preset  ? tg_model_create(from->preset, from->vocab_size, from->seed, out, error)
                         : tg_model_create_from(from->config, from->seed, out, error);
}

static int fill(tgi_model_handle *handle, const source *from)
{
  tg_error error = {0};
  tg_status status;
  Py_BEGIN_ALLOW_THREADS status = make_model(from, &handle->model, &error);
  Py_END_ALLOW_THREADS if (status != TG_OK)
  {
    return tgi_raise_status(status, error.text);
  }
  handle->info = tg_model_get_info(handle->model);
  return 0;
}

static int check_source(const source *from)
{
  if ((from->directory != NULL) + (from->preset != NULL) + (from->config != NULL) == 1) {
    return 0;
  }
  PyErr_SetString(PyExc_TypeError,
                  "model: expected a directory, a preset or a config, got several or none");
  return -1;
}

/* Weights may take minutes to load for a GPU that is not there. */
static int check_device(const tgi_model_handle *handle)
{
  tg_device_info info;
  tg_error error = {0};
  const tg_status status = handle->backend == TG_BACKEND_CUDA
                               ? tg_device_get_info(handle->device_index, &info, &error)
                               : TG_OK;
  char text[sizeof error.text + 16];
  PyOS_snprintf(text, sizeof text, "model: device: %s", error.text);
  return status ? tgi_raise_status(status, text) : 0;
}

PyObject *tgi_model_open(PyObject *module, PyObject *args, PyObject *named)
{
  static char *keys[] = {"directory", "preset",      "config",      "vocab_size", "seed",
                         "dtype",     "cache_dtype", "num_threads", "device",     NULL};
  source from = {0};
  const char *dtype = NULL, *cache_dtype = NULL, *device = "cpu";
  int num_threads = 0;
  if (!PyArg_ParseTupleAndKeywords(args, named, "|$zzziKzzis:open_model", keys, &from.directory,
                                   &from.preset, &from.config, &from.vocab_size, &from.seed, &dtype,
                                   &cache_dtype, &num_threads, &device) ||
      check_source(&from) < 0 || tgi_read_dtype(dtype, &from.dtype) < 0) {
    return NULL;
  }
  tgi_runtime_state *state = PyModule_GetState(module);
  tgi_model_handle *handle = tgi_object_new(state->model);
  if (!handle) {
    return NULL;
  }
  handle->module = Py_NewRef(module);
  handle->state = state;
  handle->num_threads = num_threads;
  if (tgi_read_device(device, &handle->backend, &handle->device_index) < 0 ||
      tgi_read_dtype(cache_dtype, &handle->cache_dtype) < 0 || check_device(handle) < 0 ||
      fill(handle, &from) < 0) {
    Py_CLEAR(handle);
  }
  return (PyObject *)handle;
}

int tgi_model_read_ids(const tgi_model_handle *handle, const char *op, PyObject *object,
                       tgi_id_rows *out)
{
  const tgi_id_use use = {.types = &handle->state->types,
                          .op = op,
                          .name = "ids",
                          .least = 0,
                          .most = handle->info.vocab_size - 1,
                          .device = tgi_model_device(handle)};
  return tgi_read_ids(&use, object, out);
}

/* ---- logits ---- */

static int check_length(const tgi_model_handle *handle, const tgi_id_rows *rows)
{
  if (rows->length <= handle->info.max_position_embeddings) {
    return 0;
  }
  PyErr_Format(PyExc_ValueError,
               "model: ids: expected at most %d tokens (the model's positions), got %lld",
               (int)handle->info.max_position_embeddings, (long long)rows->length);
  return -1;
}

/* An array for the logits: [rows, length, vocab], without the axes that `rows` or `last` lack. */
static PyObject *make_logits(const tgi_model_handle *handle, const tgi_id_rows *rows, bool last,
                             tg_dtype dtype)
{
  int64_t shape[3];
  int ndim = 0;
  if (!rows->is_one) {
    shape[ndim++] = rows->rows;
  }
  if (!last) {
    shape[ndim++] = rows->length;
  }
  shape[ndim++] = handle->info.vocab_size;
  return tgi_array_new(handle->state->array, dtype, ndim, shape);
}

static int run_forward(tgi_model_handle *handle, const tgi_id_rows *rows, bool last,
                       const tg_tensor *logits)
{
  tgi_pooled_session *pooled = tgi_session_take(handle, 0);
  if (!pooled) {
    return -1;
  }
  tg_error error = {0};
  tg_status status;
  const uint32_t flags = last ? TG_FORWARD_LAST : 0;
  Py_BEGIN_ALLOW_THREADS status = tg_session_forward(pooled->session, rows->ids, rows->rows,
                                                     rows->length, flags, *logits, &error);
  Py_END_ALLOW_THREADS tgi_session_give_back(pooled);
  return status == TG_OK ? 0 : tgi_raise_status(status, error.text);
}

/* The caller's memory for the logits, whatever its axes before the last. dtype: TG_DTYPE_NONE where
 * the memory's own will do. */
static int read_out(tgi_model_handle *handle, tgi_arguments *arguments, PyObject *out,
                    tg_dtype dtype, tg_tensor *logits)
{
  tg_tensor view = {0};
  if (tgi_read_tensor(arguments, "out", out, true, &view) < 0) {
    return -1;
  }
  const int last = view.ndim - 1;
  int64_t rows = 1;
  for (int i = 0; i < last; i++) {
    rows *= view.shape[i];
  }
  if (view.ndim < 1 || view.shape[last] != handle->info.vocab_size || view.stride[last] != 0) {
    PyErr_Format(PyExc_ValueError, "model: out: expected contiguous rows of %d logits",
                 (int)handle->info.vocab_size);
    return -1;
  }
  if (dtype && view.dtype != dtype) {
    PyErr_Format(PyExc_TypeError, "model: out: expected %s (dtype), got %s", tg_dtype_name(dtype),
                 tg_dtype_name(view.dtype));
    return -1;
  }
  *logits = tg_tensor_2d(view.data, view.dtype, rows, view.shape[last]);
  logits->device = view.device;
  return 0;
}

/* dtype: as it was asked for, or TG_DTYPE_NONE. */
static PyObject *forward_rows(tgi_model_handle *handle, const tgi_id_rows *rows, bool last,
                              PyObject *out, tg_dtype dtype)
{
  tgi_arguments arguments = {.types = &handle->state->types, .op = "model"};
  tg_tensor logits;
  PyObject *array = NULL;
  int status = check_length(handle, rows);
  if (status == 0 && out == Py_None) {
    dtype = dtype ? dtype : TG_F32;
    array = make_logits(handle, rows, last, dtype);
    status = array ? 0 : -1;
    const int64_t count = last ? rows->rows : rows->rows * rows->length;
    logits =
        tg_tensor_2d(array ? tgi_array_data(array) : NULL, dtype, count, handle->info.vocab_size);
  } else if (status == 0) {
    array = Py_NewRef(out);
    status = read_out(handle, &arguments, out, dtype, &logits);
  }
  status = status ? status : run_forward(handle, rows, last, &logits);
  Py_XDECREF(arguments.exporters);
  if (status < 0) {
    Py_CLEAR(array);
  }
  return array;
}

/* The dtype of logits: f32, or that of the weights. */
static int read_logits_dtype(const tgi_model_handle *handle, PyObject *object, tg_dtype *out)
{
  *out = TG_F32;
  if (object == Py_None) {
    return 0;
  }
  if (!PyUnicode_Check(object)) {
    PyErr_Format(PyExc_TypeError, "model: dtype: expected a name such as \"float32\", got %R",
                 object);
    return -1;
  }
  if (tgi_dtype_of_name(object, out) < 0) {
    return -1;
  }
  if (*out == TG_F32 || *out == handle->info.dtype) {
    return 0;
  }
  PyErr_Format(PyExc_ValueError,
               "model: dtype: expected float32 or that of the weights (%s), got %U",
               tgi_dtype_python_name(handle->info.dtype), object);
  return -1;
}

/* logits_dtype(dtype): its full name. */
static PyObject *logits_dtype(PyObject *self, PyObject *object)
{
  tg_dtype dtype;
  return read_logits_dtype(handle_of(self), object, &dtype) < 0
             ? NULL
             : PyUnicode_FromString(tgi_dtype_python_name(dtype));
}

/* forward(ids, last, out, dtype) */
static PyObject *forward(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
  tgi_model_handle *handle = handle_of(self);
  tgi_id_rows rows;
  tg_dtype dtype;
  if (nargs != 4) {
    PyErr_SetString(PyExc_TypeError, "forward: expected 4 arguments");
    return NULL;
  }
  const int last = PyObject_IsTrue(args[1]);
  if (last < 0 || read_logits_dtype(handle, args[3], &dtype) < 0 ||
      tgi_model_read_ids(handle, "model", args[0], &rows) < 0) {
    return NULL;
  }
  PyObject *logits =
      forward_rows(handle, &rows, last, args[2], args[3] == Py_None ? TG_DTYPE_NONE : dtype);
  free(rows.ids);
  return logits;
}

/* read_ids(ids): (rows as lists, whether they were one row, the dtype's name). */
static PyObject *read_ids(PyObject *self, PyObject *object)
{
  tgi_id_rows rows;
  if (tgi_model_read_ids(handle_of(self), "generate", object, &rows) < 0) {
    return NULL;
  }
  PyObject *value = tgi_rows_object(&rows);
  free(rows.ids);
  return value;
}

static PyMethodDef methods[] = {
    TGI_METHOD(
        "forward", forward, METH_FASTCALL,
        "forward(ids, last, out, dtype)\n--\n\nLogits of every token, or of each row's last."),
    TGI_METHOD("logits_dtype", logits_dtype, METH_O,
               "logits_dtype(dtype)\n--\n\nThe full name of a dtype that logits can have."),
    TGI_METHOD("read_ids", read_ids, METH_O, "read_ids(ids)\n--\n\nThe rows as lists of ints."),
    TGI_METHOD("generate", tgi_model_generate, METH_VARARGS | METH_KEYWORDS,
               "generate(prompt, **settings)\n--\n\nThe tokens after a prompt."),
    TGI_METHOD(
        "generate_batch", tgi_model_generate_batch, METH_VARARGS | METH_KEYWORDS,
        "generate_batch(rows, seeds, lengths, **settings)\n--\n\nThe tokens after each row."),
    TGI_METHOD("stream", tgi_model_stream, METH_VARARGS | METH_KEYWORDS,
               "stream(prompt, **settings)\n--\n\nAn iterator over the tokens after a prompt."),
    TGI_METHOD("parameters", tgi_model_parameters, METH_O,
               "parameters(writable)\n--\n\nViews of the parameters by name."),
    TGI_METHOD("set_parameter", tgi_model_set_parameter, METH_VARARGS,
               "set_parameter(name, array)\n--\n\nOverwrites a parameter."),
    TGI_METHOD("save", tgi_model_save, METH_VARARGS,
               "save(directory, dtype, max_shard_bytes, tokenizer)\n--\n\nSaves a directory."),
    TGI_METHOD("info", tgi_model_info, METH_NOARGS, "info()\n--\n\nSizes, by name."),
    TGI_METHOD("generation", tgi_model_generation, METH_NOARGS,
               "generation()\n--\n\nWhat the directory says about generating."),
    TGI_METHOD("num_sessions", tgi_model_num_sessions, METH_NOARGS,
               "num_sessions()\n--\n\n(sessions that compute, sessions in the pool)."),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)(uintptr_t)dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "A model and its sessions."},
    {0, NULL},
};

static PyType_Spec spec = {.name = "tegula._runtime.ModelHandle",
                           .basicsize = sizeof(tgi_model_handle),
                           .flags = Py_TPFLAGS_DEFAULT | 1 << 7, /* no instances by calls */
                           .slots = slots};

PyObject *tgi_model_make_type(PyObject *module)
{
  return PyType_FromModuleAndSpec(module, &spec, NULL);
}
