/* The type tegula.Array: shape, elements, and its views for others. */
#include "array_object.h"

#include "array_memory.h"

#include <stddef.h>
#include <string.h>

static tgi_array *array_of(PyObject *self)
{
  return (tgi_array *)(void *)self;
}

static void dealloc(PyObject *self)
{
  PyTypeObject *type = Py_TYPE(self);
  tgi_memory_release(array_of(self)->memory);
  PyObject_Free(self);
  Py_DECREF(type);
}

static PyObject *get_shape(PyObject *self, void *unused)
{
  (void)unused;
  const tg_tensor *view = &array_of(self)->view;
  PyObject *shape = PyTuple_New(view->ndim);
  for (int i = 0; shape && i < view->ndim; i++) {
    PyObject *extent = PyLong_FromLongLong(view->shape[i]);
    if (!extent || PyTuple_SetItem(shape, i, extent) < 0) {
      Py_CLEAR(shape);
    }
  }
  return shape;
}

static PyObject *get_ndim(PyObject *self, void *unused)
{
  (void)unused;
  return PyLong_FromLong(array_of(self)->view.ndim);
}

static PyObject *get_dtype(PyObject *self, void *unused)
{
  (void)unused;
  return PyUnicode_FromString(tgi_dtype_python_name(array_of(self)->view.dtype));
}

/* ---- elements ---- */

static double half_value(uint16_t bits)
{
  const int exponent = bits >> 10 & 31, sign = bits >> 15;
  const int32_t fraction = bits & 1023;
  uint32_t wide;
  float value;
  if (exponent == 0) {
    value = (float)fraction * 0x1p-24f;
    return sign ? -(double)value : (double)value;
  }
  wide = (uint32_t)sign << 31 | (exponent == 31 ? 255u : (uint32_t)exponent + 112) << 23 |
         (uint32_t)fraction << 13;
  memcpy(&value, &wide, sizeof value);
  return (double)value;
}

static double real_at(const tg_tensor *view, const char *at)
{
  float single;
  double wide;
  uint16_t bits;
  switch (view->dtype) {
  case TG_F32:
    memcpy(&single, at, sizeof single);
    return (double)single;
  case TG_F64:
    memcpy(&wide, at, sizeof wide);
    return wide;
  case TG_BF16: {
    memcpy(&bits, at, sizeof bits);
    const uint32_t whole = (uint32_t)bits << 16;
    memcpy(&single, &whole, sizeof single);
    return (double)single;
  }
  default:
    memcpy(&bits, at, sizeof bits);
    return half_value(bits);
  }
}

static PyObject *element(const tg_tensor *view, const char *at)
{
  int32_t narrow;
  int64_t wide;
  switch (view->dtype) {
  case TG_I32:
    memcpy(&narrow, at, sizeof narrow);
    return PyLong_FromLong(narrow);
  case TG_I64:
    memcpy(&wide, at, sizeof wide);
    return PyLong_FromLongLong(wide);
  case TG_I8:
    return PyLong_FromLong(*(const int8_t *)(const void *)at);
  case TG_U8:
    return PyLong_FromLong(*(const uint8_t *)(const void *)at);
  default:
    return PyFloat_FromDouble(real_at(view, at));
  }
}

/* The elements from `axis` on as nested lists. */
static PyObject *list_elements(const tg_tensor *view, int axis, const char *at)
{
  if (axis == view->ndim) {
    return element(view, at);
  }
  const int64_t step = view->stride[axis] * (int64_t)tg_dtype_bytes(view->dtype);
  PyObject *list = PyList_New((Py_ssize_t)view->shape[axis]);
  for (int64_t i = 0; list && i < view->shape[axis]; i++) {
    PyObject *item = list_elements(view, axis + 1, at + i * step);
    if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) {
      Py_CLEAR(list);
    }
  }
  return list;
}

/* -1 with an exception set where the host cannot read. */
static int expect_host(const tgi_array *array)
{
  if (tgi_array_on_host(array)) {
    return 0;
  }
  PyErr_Format(PyExc_BufferError,
               "expected an array in host memory, got one on GPU %d (use DLPack)",
               (int)(array->view.device - TG_DEVICE_CUDA(0)));
  return -1;
}

static PyObject *to_list(PyObject *self, PyObject *unused)
{
  (void)unused;
  return expect_host(array_of(self)) < 0
             ? NULL
             : list_elements(&array_of(self)->view, 0, array_of(self)->view.data);
}

static Py_ssize_t length(PyObject *self)
{
  if (array_of(self)->view.ndim == 0) {
    PyErr_SetString(PyExc_TypeError, "len: expected an array with axes, got one element");
    return -1;
  }
  return (Py_ssize_t)array_of(self)->view.shape[0];
}

/* array[i]: a view of one axis less, or an element. */
static PyObject *item(PyObject *self, Py_ssize_t index)
{
  tg_tensor view = array_of(self)->view;
  if (view.ndim == 0 || index < 0 || index >= view.shape[0]) {
    PyErr_Format(PyExc_IndexError, "index: expected 0 to %lld, got %zd",
                 view.ndim ? (long long)view.shape[0] - 1 : -1LL, index);
    return NULL;
  }
  view.data = (char *)view.data + index * view.stride[0] * (int64_t)tg_dtype_bytes(view.dtype);
  for (int i = 1; i < view.ndim; i++) {
    view.shape[i - 1] = view.shape[i];
    view.stride[i - 1] = view.stride[i];
  }
  view.ndim--;
  if (view.ndim) {
    return tgi_array_part(array_of(self), &view);
  }
  return expect_host(array_of(self)) < 0 ? NULL : element(&view, view.data);
}

static PyObject *represent(PyObject *self)
{
  PyObject *shape = get_shape(self, NULL);
  PyObject *text = shape ? PyUnicode_FromFormat("tegula.Array(shape=%R, dtype='%s')", shape,
                                                tgi_dtype_python_name(array_of(self)->view.dtype))
                         : NULL;
  Py_XDECREF(shape);
  return text;
}

#define METHOD(name, function, flags, doc)                                                         \
  {                                                                                                \
    name, (PyCFunction)(void (*)(void))(function), flags, doc                                      \
  }

static PyMethodDef methods[] = {
    METHOD("tolist", to_list, METH_NOARGS, "tolist()\n--\n\nThe elements as nested lists."),
    METHOD("__dlpack__", tgi_array_dlpack, METH_VARARGS | METH_KEYWORDS,
           "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nA "
           "capsule of DLPack with a view of the memory."),
    METHOD("__dlpack_device__", tgi_array_dlpack_device, METH_NOARGS,
           "__dlpack_device__()\n--\n\n(1, 0): the CPU; (2, n): GPU n."),
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef members[] = {
    {"shape", get_shape, NULL, "Extents of the axes.", NULL},
    {"ndim", get_ndim, NULL, "Number of axes.", NULL},
    {"dtype", get_dtype, NULL, "Name of the elements' dtype, such as 'float32'.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)(uintptr_t)dealloc},
    {Py_tp_repr, (void *)(uintptr_t)represent},
    {Py_tp_methods, methods},
    {Py_tp_getset, members},
    {Py_sq_length, (void *)(uintptr_t)length},
    {Py_sq_item, (void *)(uintptr_t)item},
    {TGI_SLOT_GETBUFFER, (void *)(uintptr_t)tgi_array_get_buffer},
    {Py_tp_doc, "Elements in host memory or a GPU's. numpy.from_dlpack, torch.from_dlpack, "
                "jax.numpy.from_dlpack and memoryview give views of them."},
    {0, NULL},
};

enum { disallow_instantiation = 1 << 7 };

static PyType_Spec spec = {.name = "tegula.Array",
                           .basicsize = sizeof(tgi_array),
                           .flags = Py_TPFLAGS_DEFAULT | disallow_instantiation,
                           .slots = slots};

PyObject *tgi_array_make_type(PyObject *module)
{
  return PyType_FromModuleAndSpec(module, &spec, NULL);
}
