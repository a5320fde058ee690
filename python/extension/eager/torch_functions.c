#include "torch_functions.h"

#include <string.h>

static PyObject **members(tgi_torch *torch)
{
  return (PyObject **)(void *)torch;
}

enum { NUM_MEMBERS = sizeof(tgi_torch) / sizeof(PyObject *), NUM_NAMES = 5 };
enum { NUM_GIVEN = NUM_MEMBERS - NUM_NAMES };

int tgi_torch_set(tgi_torch *torch, PyObject *args)
{
  static const char *const names[NUM_NAMES] = {"requires_grad", "_current_level", "dtype",
                                               "to_save", "scalars"};
  if (PyTuple_Size(args) != NUM_GIVEN) {
    PyErr_Format(PyExc_TypeError, "use_torch: expected %d arguments, got %zd", (int)NUM_GIVEN,
                 PyTuple_Size(args));
    return -1;
  }
  tgi_torch_clear(torch);
  for (int i = 0; i < NUM_MEMBERS; i++) {
    members(torch)[i] = i < NUM_GIVEN ? Py_NewRef(PyTuple_GetItem(args, i))
                                      : PyUnicode_InternFromString(names[i - NUM_GIVEN]);
    if (!members(torch)[i]) {
      return -1;
    }
  }
  return 0;
}

int tgi_torch_visit(tgi_torch *torch, visitproc visit, void *arg)
{
  for (int i = 0; i < NUM_MEMBERS; i++) {
    Py_VISIT(members(torch)[i]);
  }
  return 0;
}

void tgi_torch_clear(tgi_torch *torch)
{
  for (int i = 0; i < NUM_MEMBERS; i++) {
    Py_CLEAR(members(torch)[i]);
  }
}

/* The value of an object, which is released; -1 with an exception set on failure. */
static long take_long(PyObject *object)
{
  const long value = object ? PyLong_AsLong(object) : -1;
  Py_XDECREF(object);
  return value;
}

int tgi_take_truth(PyObject *object)
{
  const int truth = object ? PyObject_IsTrue(object) : -1;
  Py_XDECREF(object);
  return truth;
}

int tgi_torch_is_transformed(const tgi_torch *torch)
{
  return tgi_take_truth(PyObject_CallNoArgs(torch->functorch_active));
}

int tgi_torch_is_eager(const tgi_torch *torch)
{
  if (!torch->tensor) {
    return 0; /* the interpreter is ending */
  }
  const long modes = take_long(PyObject_CallNoArgs(torch->num_modes));
  if (modes != 0) {
    return modes == -1 && PyErr_Occurred() ? -1 : 0;
  }
  PyObject *level = PyDict_GetItemWithError(torch->forward_ad, torch->current_level);
  if (!level) {
    return PyErr_Occurred() ? -1 : 0;
  }
  const long number = PyLong_AsLong(level);
  return number == -1 && PyErr_Occurred() ? -1 : number < 0;
}

static PyObject *integers(const int64_t *values, int32_t count)
{
  PyObject *tuple = PyTuple_New(count);
  for (int i = 0; tuple && i < count; i++) {
    PyObject *value = PyLong_FromLongLong(values[i]);
    if (!value || PyTuple_SetItem(tuple, i, value) < 0) {
      Py_CLEAR(tuple);
    }
  }
  return tuple;
}

PyObject *tgi_torch_dtype(const tgi_torch *torch, tg_dtype dtype)
{
  switch (dtype) {
  case TG_F32:
    return torch->float32;
  case TG_F64:
    return torch->float64;
  case TG_F16:
    return torch->float16;
  case TG_BF16:
    return torch->bfloat16;
  default:
    return NULL;
  }
}

/* Sizes, strides and dtype. NULL with an exception set on failure. */
static PyObject *describe(const int64_t *shape, int32_t ndim, PyObject *dtype)
{
  int64_t strides[TG_MAX_NDIM];
  for (int64_t dense = 1, i = ndim - 1; i >= 0; i--) {
    strides[i] = dense;
    dense *= shape[i] > 0 ? shape[i] : 1;
  }
  PyObject *sizes = integers(shape, ndim), *steps = integers(strides, ndim);
  PyObject *args = sizes && steps ? PyTuple_Pack(3, sizes, steps, dtype) : NULL;
  Py_XDECREF(sizes);
  Py_XDECREF(steps);
  return args;
}

static bool is_last(const tgi_last_empty *last, const int64_t *shape, int32_t ndim, tg_dtype dtype)
{
  return last->args && last->ndim == ndim && last->dtype == dtype &&
         memcmp(last->shape, shape, (size_t)ndim * sizeof *shape) == 0;
}

PyObject *tgi_torch_empty(const tgi_torch *torch, tgi_last_empty *last, const int64_t *shape,
                          int32_t ndim, tg_dtype dtype, PyObject *object, int32_t device)
{
  if (!is_last(last, shape, ndim, dtype)) {
    PyObject *args = describe(shape, ndim, object), *given_up = last->args;
    if (!args) {
      return NULL;
    }
    memcpy(last->shape, shape, (size_t)ndim * sizeof *shape);
    last->ndim = ndim;
    last->dtype = dtype;
    last->args = args;
    Py_XDECREF(given_up);
  }
  PyObject *args = Py_NewRef(last->args); /* another thread may replace it meanwhile */
  PyObject *made =
      PyObject_Call(device == TG_DEVICE_CPU ? torch->empty_cpu : torch->empty_cuda, args, NULL);
  Py_DECREF(args);
  return made;
}

PyObject *tgi_torch_empty_beside(const tgi_torch *torch, PyObject *tensor, const int64_t *shape,
                                 int32_t ndim, PyObject *dtype)
{
  PyObject *sizes = integers(shape, ndim);
  PyObject *made =
      sizes ? PyObject_CallFunctionObjArgs(torch->empty_beside, tensor, sizes, dtype, NULL) : NULL;
  Py_XDECREF(sizes);
  return made;
}
