/* tegula._runtime: models, tokenizers and trainers of the runtime for Python. */
#include "files/hub_name.h"
#include "model_contents.h"
#include "runtime_module.h"
#include "status_exception.h"
#include "tokenizer_handle.h"
#include "trainer_handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *tgi_object_new(PyObject *type)
{
  return PyType_GenericAlloc((PyTypeObject *)type, 0);
}

void tgi_object_free(PyObject *self)
{
  PyTypeObject *type = Py_TYPE(self);
  PyObject_Free(self);
  Py_DECREF(type);
}

int tgi_read_device(const char *name, tg_backend *backend, int32_t *index)
{
  int number = 0;
  char end;
  *index = 0;
  if (strcmp(name, "cpu") == 0) {
    *backend = TG_BACKEND_CPU;
    return 0;
  }
  if (strcmp(name, "cuda") == 0 || (sscanf(name, "cuda:%d%c", &number, &end) == 1 && number >= 0)) {
    *backend = TG_BACKEND_CUDA;
    *index = number;
    return 0;
  }
  PyErr_Format(PyExc_ValueError, "device: expected cpu, cuda or cuda:N, got %s", name);
  return -1;
}

int tgi_read_dtype(const char *name, tg_dtype *out)
{
  *out = TG_DTYPE_NONE;
  PyObject *text = name ? PyUnicode_FromString(name) : NULL;
  const int status = !name ? 0 : text ? tgi_dtype_of_name(text, out) : -1;
  Py_XDECREF(text);
  return status;
}

/* The directory of a model: the path that was given, or that of a name in the hub's cache. */
static PyObject *find_model(PyObject *module, PyObject *given)
{
  (void)module;
  tgi_model_path path;
  tg_error error = {0};
  Py_ssize_t size;
  const char *text = PyUnicode_AsUTF8AndSize(given, &size);
  if (!text) {
    return NULL;
  }
  if (strlen(text) != (size_t)size) {
    PyErr_SetString(PyExc_ValueError, "model: expected a path, got one with a null character");
    return NULL;
  }
  const tg_status status = tgi_model_path_find(text, &path, &error);
  if (status != TG_OK) {
    tgi_raise_status(status, error.text);
    return NULL;
  }
  return PyUnicode_FromString(path.text);
}

/* The ids of one row, of any model. */
static PyObject *list_ids(PyObject *module, PyObject *object)
{
  tgi_runtime_state *state = PyModule_GetState(module);
  const tgi_id_use use = {.types = &state->types,
                          .op = "decode",
                          .name = "ids",
                          .least = 0,
                          .most = INT32_MAX,
                          .device = TG_DEVICE_CPU};
  tgi_id_rows rows;
  if (tgi_read_ids(&use, object, &rows) < 0) {
    return NULL;
  }
  PyObject *value = NULL;
  if (rows.rows == 1) {
    value = tgi_ids_object(rows.ids, rows.length);
  } else {
    PyErr_Format(PyExc_ValueError, "decode: ids: expected one row, got %lld", (long long)rows.rows);
  }
  free(rows.ids);
  return value;
}

static PyMethodDef functions[] = {
    TGI_METHOD("open_model", tgi_model_open, METH_VARARGS | METH_KEYWORDS,
               "open_model(*, directory, preset, config, ...)\n--\n\nA model's handle."),
    TGI_METHOD("open_tokenizer", tgi_tokenizer_open, METH_O,
               "open_tokenizer(directory)\n--\n\nA tokenizer's handle; None: bytes."),
    TGI_METHOD("open_chat_template", tgi_chat_template_open, METH_VARARGS,
               "open_chat_template(directory, source)\n--\n\nA chat template's handle."),
    TGI_METHOD("open_trainer", tgi_trainer_open, METH_VARARGS | METH_KEYWORDS,
               "open_trainer(model, **options)\n--\n\nA trainer's handle."),
    TGI_METHOD("plan_trainer", tgi_trainer_plan, METH_VARARGS | METH_KEYWORDS,
               "plan_trainer(model, **options)\n--\n\nIts memory: names and bytes."),
    TGI_METHOD("find_model", find_model, METH_O,
               "find_model(directory_or_name)\n--\n\nThe model's directory."),
    TGI_METHOD("list_ids", list_ids, METH_O, "list_ids(ids)\n--\n\nOne row of ids as ints."),
    TGI_METHOD("presets", tgi_list_presets, METH_NOARGS, "presets()\n--\n\nThe table."),
    TGI_METHOD("preset_config", tgi_preset_config_text, METH_VARARGS,
               "preset_config(name, vocab_size)\n--\n\nThe text of a config.json."),
    {NULL, NULL, 0, NULL},
};

static int exec_module(PyObject *module)
{
  tgi_runtime_state *state = PyModule_GetState(module);
  PyObject *core = PyImport_ImportModule("tegula._core");
  state->array = core ? PyObject_GetAttrString(core, "Array") : NULL;
  Py_XDECREF(core);
  state->model = state->array ? tgi_model_make_type(module) : NULL;
  state->stream = state->model ? tgi_stream_make_type(module) : NULL;
  state->tokenizer = state->stream ? tgi_tokenizer_make_type(module) : NULL;
  state->chat_template = state->tokenizer ? tgi_chat_template_make_type(module) : NULL;
  state->trainer = state->chat_template ? tgi_trainer_make_type(module) : NULL;
  return state->trainer ? 0 : -1;
}

static PyObject **types_of(tgi_runtime_state *state)
{
  return &state->array;
}

enum { kTypes = 6 }; /* array to trainer */

static int traverse_module(PyObject *module, visitproc visit, void *arg)
{
  tgi_runtime_state *state = PyModule_GetState(module);
  for (int i = 0; state && i < kTypes; i++) {
    Py_VISIT(types_of(state)[i]);
  }
  return state ? tgi_type_table_visit(&state->types, visit, arg) : 0;
}

static int clear_module(PyObject *module)
{
  tgi_runtime_state *state = PyModule_GetState(module);
  for (int i = 0; state && i < kTypes; i++) {
    Py_CLEAR(types_of(state)[i]);
  }
  if (state) {
    tgi_type_table_clear(&state->types);
  }
  return 0;
}

static void free_module(void *module)
{
  clear_module(module);
}

static PyModuleDef_Slot slots[4] = {{Py_mod_exec, (void *)(uintptr_t)exec_module}, {0, NULL}};

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "tegula._runtime",
    .m_doc = "The runtime of libtegula: handles of its objects.",
    .m_size = sizeof(tgi_runtime_state),
    .m_methods = functions,
    .m_slots = slots,
    .m_traverse = traverse_module,
    .m_clear = clear_module,
    .m_free = free_module,
};

/* As in _core.c: slots that the limited API of 3.10 has no names for. */
static void add_interpreter_slots(void)
{
  enum { multiple_interpreters = 3, per_interpreter_gil = 2 };
  int major = 0, minor = 0;
  if (sscanf(Py_GetVersion(), "%d.%d", &major, &minor) == 2 && (major > 3 || minor >= 12)) {
    slots[1] = (PyModuleDef_Slot){multiple_interpreters, (void *)(uintptr_t)per_interpreter_gil};
    slots[2] = (PyModuleDef_Slot){0, NULL};
  }
}

PyMODINIT_FUNC PyInit__runtime(void);

PyMODINIT_FUNC PyInit__runtime(void)
{
  add_interpreter_slots();
  return PyModuleDef_Init(&definition);
}
