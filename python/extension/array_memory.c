/* Making arrays, and the memory that they share with those who view it. */
#include "array_memory.h"

#include <stdlib.h>
#include <string.h>

static void free_bytes(void *bytes, const tgi_memory_kind *kind, int32_t device_index)
{
  if (kind && bytes) {
    kind->release(bytes, device_index);
  } else if (!kind) {
    free(bytes);
  }
}

static bool is_last(tgi_shared_memory *memory)
{
  return memory && atomic_fetch_sub(&memory->references, 1) == 1;
}

void tgi_memory_release(tgi_shared_memory *memory)
{
  if (is_last(memory)) {
    Py_XDECREF(memory->owner);
    free_bytes(memory->bytes, memory->kind, memory->device_index);
    free(memory);
  }
}

/* The lock is needed for an owner alone; at the end of the process there is no Python any more. */
void tgi_memory_release_anywhere(tgi_shared_memory *memory)
{
  if (!is_last(memory)) {
    return;
  }
  if (memory->owner && Py_IsInitialized()) {
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(memory->owner);
    PyGILState_Release(state);
  }
  free_bytes(memory->bytes, memory->kind, memory->device_index);
  free(memory);
}

static PyObject *make(PyObject *type, const tg_tensor *view, tgi_shared_memory *memory,
                      bool writable)
{
  tgi_array *array = PyObject_New(tgi_array, (PyTypeObject *)type);
  if (!array) {
    tgi_memory_release(memory);
    return NULL;
  }
  array->view = *view;
  array->memory = memory;
  array->writable = writable;
  int64_t dense = 1;
  const bool contiguous = tgi_strides_are_zero(view);
  for (int i = view->ndim - 1; i >= 0; i--) {
    array->view.stride[i] = contiguous ? dense : view->stride[i];
    array->extents[i] = (Py_ssize_t)view->shape[i];
    array->steps[i] = (Py_ssize_t)(array->view.stride[i] * (int64_t)tg_dtype_bytes(view->dtype));
    dense *= view->shape[i];
  }
  return (PyObject *)array;
}

static tgi_shared_memory *share(void *bytes, const tgi_memory_kind *kind, int32_t device_index,
                                PyObject *owner)
{
  tgi_shared_memory *memory = malloc(sizeof *memory);
  if (!memory) {
    free_bytes(bytes, kind, device_index);
    PyErr_NoMemory();
    return NULL;
  }
  atomic_init(&memory->references, 1);
  memory->bytes = bytes;
  memory->kind = kind;
  memory->device_index = device_index;
  memory->owner = owner;
  Py_XINCREF(owner);
  return memory;
}

int tgi_array_bytes(tg_dtype dtype, int ndim, const int64_t *shape, size_t *out)
{
  size_t bytes = tg_dtype_bytes(dtype);
  for (int i = 0; i < ndim; i++) {
    if (shape[i] > 0 && bytes > SIZE_MAX / 2 / (size_t)shape[i]) {
      PyErr_NoMemory();
      return -1;
    }
    bytes *= (size_t)shape[i];
  }
  *out = bytes;
  return 0;
}

PyObject *tgi_array_own(PyObject *type, const tg_tensor *view, void *bytes,
                        const tgi_memory_kind *kind, int32_t device_index)
{
  tgi_shared_memory *shared = share(bytes, kind, device_index, NULL);
  return shared ? make(type, view, shared, true) : NULL;
}

PyObject *tgi_array_new(PyObject *type, tg_dtype dtype, int ndim, const int64_t *shape)
{
  size_t bytes;
  if (tgi_array_bytes(dtype, ndim, shape, &bytes) < 0) {
    return NULL;
  }
  /* 256: what the library's own memory has, and more than any importer asks for */
  void *memory = aligned_alloc(256, (bytes / 256 + 1) * 256);
  if (!memory) {
    return PyErr_NoMemory();
  }
  tg_tensor view = tg_tensor_view(memory, dtype, ndim, shape);
  view.device = TG_DEVICE_CPU;
  return tgi_array_own(type, &view, memory, NULL, 0);
}

PyObject *tgi_array_view(PyObject *type, const tg_tensor *view, PyObject *owner, bool writable)
{
  tgi_shared_memory *shared = share(NULL, NULL, 0, owner);
  return shared ? make(type, view, shared, writable) : NULL;
}

PyObject *tgi_array_part(tgi_array *array, const tg_tensor *view)
{
  atomic_fetch_add(&array->memory->references, 1);
  return make((PyObject *)Py_TYPE(array), view, array->memory, array->writable);
}

void *tgi_array_data(PyObject *array)
{
  return ((tgi_array *)(void *)array)->view.data;
}

/* ---- dtypes ---- */

static const struct {
  tg_dtype dtype;
  const char *name;
} names[] = {{TG_F32, "float32"}, {TG_BF16, "bfloat16"}, {TG_F16, "float16"}, {TG_F64, "float64"},
             {TG_I32, "int32"},   {TG_I64, "int64"},     {TG_I8, "int8"},     {TG_U8, "uint8"}};

const char *tgi_dtype_python_name(tg_dtype dtype)
{
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    if (names[i].dtype == dtype) {
      return names[i].name;
    }
  }
  return NULL;
}

int tgi_dtype_of_name(PyObject *name, tg_dtype *out)
{
  for (size_t i = 0; PyUnicode_Check(name) && i < sizeof names / sizeof names[0]; i++) {
    if (PyUnicode_CompareWithASCIIString(name, names[i].name) == 0 ||
        PyUnicode_CompareWithASCIIString(name, tg_dtype_name(names[i].dtype)) == 0) {
      *out = names[i].dtype;
      return 0;
    }
  }
  PyErr_Format(PyExc_ValueError, "dtype: expected a name such as \"float32\", got %R", name);
  return -1;
}
