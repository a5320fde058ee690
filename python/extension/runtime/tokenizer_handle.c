#include "tokenizer_handle.h"

#include "id_rows.h"
#include "status_exception.h"

#include <stdlib.h>
#include <string.h>

typedef struct tokenizer_handle {
  PyObject ob_base;
  tg_tokenizer *tokenizer;
} tokenizer_handle;

static const tg_tokenizer *tokenizer_in(PyObject *self)
{
  return ((tokenizer_handle *)(void *)self)->tokenizer;
}

static void dealloc(PyObject *self)
{
  tg_tokenizer_destroy(((tokenizer_handle *)(void *)self)->tokenizer);
  tgi_object_free(self);
}

int tgi_tokenizer_of(const tgi_runtime_state *state, PyObject *object, const tg_tokenizer **out)
{
  *out = NULL;
  if (object == Py_None) {
    return 0;
  }
  if ((PyObject *)Py_TYPE(object) != state->tokenizer) {
    PyErr_Format(PyExc_TypeError, "tokenizer: expected a tegula.Tokenizer or None, got %R",
                 Py_TYPE(object));
    return -1;
  }
  *out = tokenizer_in(object);
  return 0;
}

PyObject *tgi_tokenizer_open(PyObject *module, PyObject *directory)
{
  const tgi_runtime_state *state = PyModule_GetState(module);
  Py_ssize_t size = 0;
  const char *path = directory == Py_None ? NULL : PyUnicode_AsUTF8AndSize(directory, &size);
  if (path && strlen(path) != (size_t)size) {
    PyErr_SetString(PyExc_ValueError, "embedded null character");
    return NULL;
  }
  tokenizer_handle *handle = path || directory == Py_None ? tgi_object_new(state->tokenizer) : NULL;
  if (!handle) {
    return NULL;
  }
  tg_error error = {0};
  tg_status status;
  Py_BEGIN_ALLOW_THREADS status = path ? tg_tokenizer_load(path, &handle->tokenizer, &error)
                                       : tg_tokenizer_create_bytes(&handle->tokenizer, &error);
  Py_END_ALLOW_THREADS if (status != TG_OK)
  {
    tgi_raise_status(status, error.text);
    Py_CLEAR(handle);
  }
  return (PyObject *)handle;
}

/* ---- text to ids ---- */

/* Parts of a text that somebody else wrote: a list of (begin, end), or None. -1: exception. */
static int read_ranges(PyObject *list, tg_text_range **out, size_t *count)
{
  *out = NULL;
  *count = 0;
  if (list == Py_None) {
    return 0;
  }
  const Py_ssize_t size = PyList_Size(list);
  tg_text_range *ranges = size < 0 ? NULL : malloc(((size_t)size + 1) * sizeof *ranges);
  if (!ranges) {
    if (size >= 0) {
      PyErr_NoMemory();
    }
    return -1;
  }
  for (Py_ssize_t i = 0; i < size; i++) {
    Py_ssize_t begin, end;
    if (!PyArg_ParseTuple(PyList_GetItem(list, i), "nn", &begin, &end)) {
      free(ranges);
      return -1;
    }
    ranges[i] = (tg_text_range){.begin = (size_t)begin, .end = (size_t)end};
  }
  *out = ranges;
  *count = (size_t)size;
  return 0;
}

/* encode(text, flags, ranges) */
static PyObject *encode(PyObject *self, PyObject *args)
{
  const char *text;
  Py_ssize_t size;
  unsigned int flags;
  PyObject *list, *value = NULL;
  tg_text_range *ranges;
  size_t num_ranges, count = 0;
  if (!PyArg_ParseTuple(args, "s#IO:encode", &text, &size, &flags, &list) ||
      read_ranges(list, &ranges, &num_ranges) < 0) {
    return NULL;
  }
  /* at most one id a byte, three where text is normalised, and those around it */
  const size_t room = 3 * (size_t)size + 64;
  int32_t *ids = malloc(room * sizeof *ids);
  tg_error error = {0};
  tg_status status = TG_NO_MEMORY;
  if (ids) {
    Py_BEGIN_ALLOW_THREADS status =
        tg_tokenizer_encode_marked(tokenizer_in(self), text, (size_t)size, ranges, num_ranges,
                                   flags, ids, room, &count, &error);
    Py_END_ALLOW_THREADS
  }
  if (status != TG_OK) {
    tgi_raise_status(status, error.text);
  } else {
    value = tgi_ids_object(ids, (int64_t)count);
  }
  free(ids);
  free(ranges);
  return value;
}

/* ---- ids to text ---- */

/* decode(ids, flags): bytes. */
static PyObject *decode(PyObject *self, PyObject *args)
{
  PyObject *list, *value = NULL;
  unsigned int flags;
  if (!PyArg_ParseTuple(args, "O!I:decode", &PyList_Type, &list, &flags)) {
    return NULL;
  }
  const Py_ssize_t count = PyList_Size(list);
  int32_t *ids = malloc(((size_t)count + 1) * sizeof *ids);
  for (Py_ssize_t i = 0; ids && i < count; i++) {
    const long id = PyLong_AsLong(PyList_GetItem(list, i));
    if (id < 0 || id > INT32_MAX) {
      if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "decode: ids[%zd]: expected 0 to %d, got %ld", i, INT32_MAX,
                     id);
      }
      free(ids);
      return NULL;
    }
    ids[i] = (int32_t)id;
  }
  size_t size = 0;
  tg_error error = {0};
  tg_status status = ids ? tg_tokenizer_decode(tokenizer_in(self), ids, (size_t)count, flags, NULL,
                                               0, &size, &error)
                         : TG_NO_MEMORY;
  if (status == TG_OK) {
    value = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (value && size > 0) {
      status = tg_tokenizer_decode(tokenizer_in(self), ids, (size_t)count, flags,
                                   PyBytes_AsString(value), size, &size, &error);
    }
  }
  if (status != TG_OK) {
    Py_CLEAR(value);
    tgi_raise_status(status, error.text);
  }
  free(ids);
  return value;
}

static PyObject *piece(PyObject *self, PyObject *number)
{
  static const char *const kinds[] = {"none", "ordinary", "added", "special"};
  const long id = PyLong_AsLong(number);
  if (id == -1 && PyErr_Occurred()) {
    return NULL;
  }
  const bool fits = id >= 0 && id <= INT32_MAX;
  const tg_token token = tg_tokenizer_piece(tokenizer_in(self), fits ? (int32_t)id : -1);
  return Py_BuildValue("(y#s)", token.size ? token.bytes : "", (Py_ssize_t)token.size,
                       kinds[token.kind]);
}

/* ---- the rest ---- */

static PyObject *special(PyObject *self, PyObject *name)
{
  const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
  return text ? PyLong_FromLong(tg_tokenizer_special(tokenizer_in(self), text)) : NULL;
}

static PyObject *vocab_size(PyObject *self, PyObject *unused)
{
  (void)unused;
  return PyLong_FromLong(tg_tokenizer_vocab_size(tokenizer_in(self)));
}

static PyObject *save(PyObject *self, PyObject *directory)
{
  const char *path = PyUnicode_AsUTF8AndSize(directory, NULL);
  tg_error error = {0};
  if (!path) {
    return NULL;
  }
  const tg_status status = tg_tokenizer_save(tokenizer_in(self), path, &error);
  if (status != TG_OK) {
    tgi_raise_status(status, error.text);
    return NULL;
  }
  return Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    TGI_METHOD("encode", encode, METH_VARARGS, "encode(text, flags, ranges)\n--\n\nIds."),
    TGI_METHOD("decode", decode, METH_VARARGS, "decode(ids, flags)\n--\n\nBytes."),
    TGI_METHOD("piece", piece, METH_O, "piece(id)\n--\n\nThe token's bytes and its kind."),
    TGI_METHOD("special", special, METH_O, "special(name)\n--\n\nId of a special token; -1: none."),
    TGI_METHOD("vocab_size", vocab_size, METH_NOARGS,
               "vocab_size()\n--\n\nOne more than the largest id."),
    TGI_METHOD("save", save, METH_O, "save(directory)\n--\n\nWrites the files as they came."),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)(uintptr_t)dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "A tokenizer."},
    {0, NULL},
};

static PyType_Spec spec = {.name = "tegula._runtime.TokenizerHandle",
                           .basicsize = sizeof(tokenizer_handle),
                           .flags = Py_TPFLAGS_DEFAULT | 1 << 7, /* no instances by calls */
                           .slots = slots};

PyObject *tgi_tokenizer_make_type(PyObject *module)
{
  return PyType_FromModuleAndSpec(module, &spec, NULL);
}
