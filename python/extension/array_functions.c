#include "array_functions.h"

#include "array_memory.h"

#include <string.h>

enum { on_host = -1 };

/* (extents) to an array without initialised elements, unless zeros are wanted. */
static PyObject *make(PyObject *type, PyObject *extents, PyObject *name, int device, bool zero)
{
  int64_t shape[TG_MAX_NDIM];
  tg_dtype dtype;
  const Py_ssize_t ndim = PyTuple_Size(extents);
  if (ndim > TG_MAX_NDIM) {
    PyErr_Format(PyExc_ValueError, "shape: expected at most %d axes, got %zd", TG_MAX_NDIM, ndim);
    return NULL;
  }
  for (Py_ssize_t i = 0; i < ndim; i++) {
    shape[i] = PyLong_AsLongLong(PyTuple_GetItem(extents, i));
    if (shape[i] < 0) {
      if (!PyErr_Occurred()) {
        PyErr_Format(PyExc_ValueError, "shape: expected extents of 0 or more, got %lld",
                     (long long)shape[i]);
      }
      return NULL;
    }
  }
  size_t bytes;
  if (tgi_dtype_of_name(name, &dtype) < 0 || tgi_array_bytes(dtype, (int)ndim, shape, &bytes) < 0) {
    return NULL;
  }
  if (device != on_host) {
    return tgi_array_new_on_gpu(type, dtype, (int)ndim, shape, device, zero);
  }
  PyObject *made = tgi_array_new(type, dtype, (int)ndim, shape);
  if (made && zero) {
    memset(tgi_array_data(made), 0, bytes);
  }
  return made;
}

PyObject *tgi_array_empty(PyObject *type, PyObject *args)
{
  PyObject *extents, *name;
  int device = on_host, zero = 0;
  return PyArg_ParseTuple(args, "O!O|ip:empty", &PyTuple_Type, &extents, &name, &device, &zero)
             ? make(type, extents, name, device, zero != 0)
             : NULL;
}

/* One number to where it belongs. -1 with an exception set on failure. */
static int store(char *at, tg_dtype dtype, PyObject *value)
{
  if (dtype == TG_I64 || dtype == TG_I32) {
    const int64_t wide = PyLong_AsLongLong(value);
    const int32_t narrow = (int32_t)wide;
    if (wide == -1 && PyErr_Occurred()) {
      return -1;
    }
    if (dtype == TG_I64) {
      memcpy(at, &wide, sizeof wide);
    } else if (narrow != wide) {
      PyErr_Format(PyExc_OverflowError, "array: expected an integer of 32 bits, got %R", value);
      return -1;
    } else {
      memcpy(at, &narrow, sizeof narrow);
    }
    return 0;
  }
  const double real = PyFloat_AsDouble(value);
  const float single = (float)real;
  if (real == -1 && PyErr_Occurred()) {
    return -1;
  }
  if (dtype == TG_F64) {
    memcpy(at, &real, sizeof real);
  } else {
    memcpy(at, &single, sizeof single);
  }
  return 0;
}

PyObject *tgi_array_from_values(PyObject *type, PyObject *args)
{
  PyObject *values, *extents, *name;
  if (!PyArg_ParseTuple(args, "O!O!O:array", &PyList_Type, &values, &PyTuple_Type, &extents,
                        &name)) {
    return NULL;
  }
  PyObject *made = make(type, extents, name, on_host, false);
  if (!made) {
    return NULL;
  }
  const tg_tensor *view = &((tgi_array *)(void *)made)->view;
  const tg_dtype t = view->dtype;
  int64_t numel = 1;
  for (int i = 0; i < view->ndim; i++) {
    numel *= view->shape[i];
  }
  const bool known = t == TG_I32 || t == TG_I64 || t == TG_F32 || t == TG_F64;
  if (!known || PyList_Size(values) != numel) {
    PyErr_Format(PyExc_ValueError, "array: expected %lld values of i32, i64, f32 or f64, got %zd",
                 (long long)numel, PyList_Size(values));
    Py_CLEAR(made);
  }
  for (int64_t i = 0; made && i < numel; i++) {
    char *at = (char *)view->data + i * (int64_t)tg_dtype_bytes(t);
    if (store(at, t, PyList_GetItem(values, (Py_ssize_t)i)) < 0) {
      Py_CLEAR(made);
    }
  }
  return made;
}
