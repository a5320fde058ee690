#include "model_contents.h"

#include "status_exception.h"
#include "tokenizer_handle.h"

#include <stdlib.h>

static tgi_model_handle *handle_of(PyObject *self)
{
  return (tgi_model_handle *)(void *)self;
}

/* ---- parameters ---- */

PyObject *tgi_model_parameters(PyObject *self, PyObject *writable)
{
  tgi_model_handle *handle = handle_of(self);
  const int writes = PyObject_IsTrue(writable);
  PyObject *views = writes < 0 ? NULL : PyDict_New();
  tg_tensor view;
  const char *name;
  for (size_t i = 0; views && tg_model_parameter(handle->model, i, &view, &name) == TG_OK; i++) {
    view.device = TG_DEVICE_CPU;
    PyObject *array = tgi_array_view(handle->state->array, &view, self, writes);
    if (!array || PyDict_SetItemString(views, name, array) < 0) {
      Py_CLEAR(views);
    }
    Py_XDECREF(array);
  }
  return views;
}

PyObject *tgi_model_set_parameter(PyObject *self, PyObject *args)
{
  tgi_model_handle *handle = handle_of(self);
  const char *name;
  PyObject *array;
  if (!PyArg_ParseTuple(args, "sO:set_parameter", &name, &array)) {
    return NULL;
  }
  tgi_arguments arguments = {.types = &handle->state->types, .op = "model"};
  tg_tensor view = {0};
  int result = tgi_read_tensor(&arguments, name, array, false, &view);
  if (result == 0) {
    tg_error error = {0};
    tg_status status;
    Py_BEGIN_ALLOW_THREADS status = tg_model_set_parameter(handle->model, name, view, &error);
    Py_END_ALLOW_THREADS result = status ? tgi_raise_status(status, error.text) : 0;
    tgi_model_touch(handle);
  }
  Py_XDECREF(arguments.exporters);
  return result < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- files ---- */

PyObject *tgi_model_save(PyObject *self, PyObject *args)
{
  tgi_model_handle *handle = handle_of(self);
  const char *directory, *dtype;
  long long most;
  PyObject *tokenizer;
  tg_save_options options = {.tokenizer = NULL};
  if (!PyArg_ParseTuple(args, "szLO:save", &directory, &dtype, &most, &tokenizer) ||
      tgi_read_dtype(dtype, &options.dtype) < 0 ||
      tgi_tokenizer_of(handle->state, tokenizer, &options.tokenizer) < 0) {
    return NULL;
  }
  options.max_shard_bytes = most;
  tg_error error = {0};
  tg_status status;
  Py_BEGIN_ALLOW_THREADS status = tg_model_save(handle->model, &options, directory, &error);
  Py_END_ALLOW_THREADS if (status != TG_OK)
  {
    tgi_raise_status(status, error.text);
    return NULL;
  }
  return Py_NewRef(Py_None);
}

/* ---- descriptions ---- */

PyObject *tgi_model_info(PyObject *self, PyObject *unused)
{
  (void)unused;
  const tg_model_info *i = &handle_of(self)->info;
  return Py_BuildValue(
      "{s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:L,s:n}", "model_type", i->model_type, "dtype",
      tgi_dtype_python_name(i->dtype), "vocab_size", (int)i->vocab_size, "num_hidden_layers",
      (int)i->num_hidden_layers, "hidden_size", (int)i->hidden_size, "num_attention_heads",
      (int)i->num_attention_heads, "num_key_value_heads", (int)i->num_key_value_heads, "head_dim",
      (int)i->head_dim, "intermediate_size", (int)i->intermediate_size, "max_position_embeddings",
      (int)i->max_position_embeddings, "num_parameters", (long long)i->num_parameters,
      "weight_bytes", (Py_ssize_t)i->weight_bytes);
}

PyObject *tgi_model_generation(PyObject *self, PyObject *unused)
{
  (void)unused;
  const tg_model *model = handle_of(self)->model;
  const tg_generation_config g = tg_model_get_generation_config(model);
  int64_t count;
  const int32_t *ids = tg_model_eos_token_ids(model, &count);
  PyObject *eos = tgi_ids_object(ids, count);
  return eos ? Py_BuildValue("{s:d,s:i,s:d,s:d,s:d,s:i,s:i,s:i,s:N}", "temperature",
                             (double)g.temperature, "top_k", (int)g.top_k, "top_p", (double)g.top_p,
                             "min_p", (double)g.min_p, "repetition_penalty",
                             (double)g.repetition_penalty, "max_new_tokens", (int)g.max_new_tokens,
                             "bos_token_id", (int)g.bos_token_id, "pad_token_id",
                             (int)g.pad_token_id, "eos_token_ids", eos)
             : NULL;
}

PyObject *tgi_model_num_sessions(PyObject *self, PyObject *unused)
{
  (void)unused;
  int busy = 0, all = 0;
  for (const tgi_pooled_session *p = handle_of(self)->sessions; p; p = p->next) {
    busy += p->busy;
    all++;
  }
  return Py_BuildValue("(ii)", busy, all);
}

/* ---- presets ---- */

static PyObject *describe_preset(const tg_preset *p)
{
  return Py_BuildValue(
      "{s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:O,s:L}", "name", p->name, "model_type",
      p->model_type, "vocab_size", (int)p->vocab_size, "num_hidden_layers",
      (int)p->num_hidden_layers, "hidden_size", (int)p->hidden_size, "num_attention_heads",
      (int)p->num_attention_heads, "num_key_value_heads", (int)p->num_key_value_heads, "head_dim",
      (int)p->head_dim, "intermediate_size", (int)p->intermediate_size, "max_position_embeddings",
      (int)p->max_position_embeddings, "tie_word_embeddings",
      p->tie_word_embeddings ? Py_True : Py_False, "num_parameters", (long long)p->num_parameters);
}

PyObject *tgi_list_presets(PyObject *module, PyObject *unused)
{
  (void)module;
  (void)unused;
  PyObject *list = PyList_New(0);
  tg_preset preset;
  for (size_t i = 0; list && tg_preset_get(i, &preset) == TG_OK; i++) {
    PyObject *described = describe_preset(&preset);
    if (!described || PyList_Append(list, described) < 0) {
      Py_CLEAR(list);
    }
    Py_XDECREF(described);
  }
  return list;
}

PyObject *tgi_preset_config_text(PyObject *module, PyObject *args)
{
  (void)module;
  const char *name;
  int vocab_size;
  if (!PyArg_ParseTuple(args, "si:preset_config", &name, &vocab_size)) {
    return NULL;
  }
  tg_error error = {0};
  size_t size = 0;
  tg_status status = tg_preset_config(name, vocab_size, NULL, 0, &size, &error);
  char *text = status ? NULL : malloc(size + 1);
  if (!status && !text) {
    return PyErr_NoMemory();
  }
  status = status ? status : tg_preset_config(name, vocab_size, text, size, &size, &error);
  PyObject *value = NULL;
  if (status != TG_OK) {
    tgi_raise_status(status, error.text);
  } else {
    value = PyUnicode_FromStringAndSize(text, (Py_ssize_t)size);
  }
  free(text);
  return value;
}

/* ---- rows ---- */

PyObject *tgi_rows_object(const tgi_id_rows *rows)
{
  PyObject *lists = PyList_New((Py_ssize_t)rows->rows);
  for (int64_t r = 0; lists && r < rows->rows; r++) {
    PyObject *list = tgi_ids_object(rows->ids + r * rows->length, rows->length);
    if (!list || PyList_SetItem(lists, (Py_ssize_t)r, list) < 0) {
      Py_CLEAR(lists);
    }
  }
  return lists ? Py_BuildValue("(NOs)", lists, rows->is_one ? Py_True : Py_False,
                               tgi_dtype_python_name(rows->dtype))
               : NULL;
}
