/* An array's memory for others: DLPack capsules and Python's buffers. */
#include "array_memory.h"
#include "dlpack_abi.h"

#include <stdlib.h>
#include <string.h>

/* ---- DLPack ---- */

/* What a capsule points to, in either form. */
typedef struct exported {
  DLManagedTensorVersioned versioned;
  DLManagedTensor plain;
  int64_t shape[TG_MAX_NDIM], strides[TG_MAX_NDIM];
  tgi_shared_memory *memory;
} exported;

static void delete_exported(exported *e)
{
  tgi_memory_release_anywhere(e->memory);
  free(e);
}

static void delete_versioned(DLManagedTensorVersioned *tensor)
{
  delete_exported(tensor->manager_ctx);
}

static void delete_plain(DLManagedTensor *tensor)
{
  delete_exported(tensor->manager_ctx);
}

/* Nobody has consumed a capsule that still has its name. */
static void end_versioned(PyObject *capsule)
{
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    delete_versioned(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
  }
}

static void end_plain(PyObject *capsule)
{
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    delete_plain(PyCapsule_GetPointer(capsule, "dltensor"));
  }
}

static DLDataType dtype_for(tg_dtype dtype)
{
  const uint8_t bits = (uint8_t)(8 * tg_dtype_bytes(dtype));
  const bool whole = dtype == TG_I32 || dtype == TG_I64 || dtype == TG_I8;
  const uint8_t code = whole                 ? kDLInt
                       : dtype == TG_U8      ? kDLUInt
                       : dtype == TG_BF16    ? kDLBfloat
                       : dtype == TG_F8_E4M3 ? kDLFloat8E4m3fn
                                             : kDLFloat;
  return (DLDataType){.code = code, .bits = bits, .lanes = 1};
}

static DLDevice device_of(const tgi_array *array)
{
  return tgi_array_on_host(array) ? (DLDevice){.device_type = kDLCPU}
                                  : (DLDevice){kDLCUDA, array->view.device - TG_DEVICE_CUDA(0)};
}

/* Until the GPU has written the elements, whatever stream their reader has. */
static int wait_for_elements(const tgi_array *array)
{
  const tgi_memory_kind *kind = array->memory->kind;
  tg_error error = {0};
  tg_status status = TG_OK;
  if (kind) {
    Py_BEGIN_ALLOW_THREADS status = kind->wait(array->memory->device_index, &error);
    Py_END_ALLOW_THREADS
  }
  if (status != TG_OK) {
    PyErr_Format(PyExc_RuntimeError, "__dlpack__: %s", error.text);
  }
  return status == TG_OK ? 0 : -1;
}

static PyObject *export_array(tgi_array *array, bool versioned)
{
  exported *e = calloc(1, sizeof *e);
  if (!e) {
    return PyErr_NoMemory();
  }
  memcpy(e->shape, array->view.shape, sizeof e->shape);
  memcpy(e->strides, array->view.stride, sizeof e->strides);
  e->memory = array->memory;
  const DLTensor tensor = {.data = array->view.data,
                           .device = device_of(array),
                           .ndim = array->view.ndim,
                           .dtype = dtype_for(array->view.dtype),
                           .shape = e->shape,
                           .strides = e->strides};
  e->versioned = (DLManagedTensorVersioned){.version = {.major = 1, .minor = 1},
                                            .manager_ctx = e,
                                            .deleter = delete_versioned,
                                            .flags = array->writable ? 0 : DLPACK_FLAG_READ_ONLY,
                                            .dl_tensor = tensor};
  e->plain = (DLManagedTensor){.dl_tensor = tensor, .manager_ctx = e, .deleter = delete_plain};
  PyObject *capsule = versioned ? PyCapsule_New(&e->versioned, "dltensor_versioned", end_versioned)
                                : PyCapsule_New(&e->plain, "dltensor", end_plain);
  if (!capsule) {
    free(e);
    return NULL;
  }
  atomic_fetch_add(&array->memory->references, 1);
  return capsule;
}

PyObject *tgi_array_dlpack(PyObject *self, PyObject *args, PyObject *named)
{
  static char *keys[] = {"stream", "max_version", "dl_device", "copy", NULL};
  PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, named, "|OOOO:__dlpack__", keys, &stream, &version,
                                   &device, &copy)) {
    return NULL;
  }
  tgi_array *array = (tgi_array *)(void *)self;
  const DLDevice own = device_of(array);
  int major = 0, minor = 0, kind = (int)own.device_type, index = own.device_id;
  if (version != Py_None && !PyArg_ParseTuple(version, "ii", &major, &minor)) {
    return NULL;
  }
  if (device != Py_None && !PyArg_ParseTuple(device, "ii", &kind, &index)) {
    return NULL;
  }
  const bool elsewhere = kind != (int)own.device_type || index != own.device_id;
  if (elsewhere || copy == Py_True) {
    PyErr_SetString(PyExc_BufferError,
                    elsewhere
                        ? "__dlpack__: dl_device: expected the array's own, got another device"
                        : "__dlpack__: copy: expected None or False, got True");
    return NULL;
  }
  if (major < 1 && !array->writable) { /* that form has no mark for it */
    PyErr_SetString(PyExc_BufferError, "__dlpack__: max_version: expected 1.0 or later for an "
                                       "array that is read-only, got an older one");
    return NULL;
  }
  return wait_for_elements(array) < 0 ? NULL : export_array(array, major >= 1);
}

PyObject *tgi_array_dlpack_device(PyObject *array, PyObject *unused)
{
  const DLDevice own = device_of((tgi_array *)(void *)array);
  (void)unused;
  return Py_BuildValue("(ii)", (int)own.device_type, (int)own.device_id);
}

/* ---- buffers ---- */

static const char *format_of(tg_dtype dtype)
{
  switch (dtype) {
  case TG_F32:
    return "f";
  case TG_F64:
    return "d";
  case TG_F16:
    return "e";
  case TG_I32:
    return "i";
  case TG_I64:
    return "q";
  case TG_I8:
    return "b";
  case TG_U8:
    return "B";
  default:
    return NULL;
  }
}

int tgi_array_get_buffer(PyObject *self, tgi_py_buffer *buffer, int flags)
{
  enum { writable = 1, with_format = 4, with_shape = 8, with_strides = 0x18 };
  tgi_array *array = (tgi_array *)(void *)self;
  const tg_tensor *view = &array->view;
  const char *format = format_of(view->dtype);
  int64_t numel = 1, dense = 1;
  bool contiguous = true;
  for (int i = view->ndim - 1; i >= 0; i--) {
    contiguous = contiguous && (view->shape[i] <= 1 || view->stride[i] == dense);
    dense *= view->shape[i];
    numel *= view->shape[i];
  }
  buffer->obj = NULL;
  if (!format || !tgi_array_on_host(array) || ((flags & writable) && !array->writable) ||
      (!contiguous && (flags & with_strides) != with_strides)) {
    PyErr_Format(PyExc_BufferError, "buffer: expected %s",
                 !tgi_array_on_host(array) ? "an array in host memory (use DLPack)"
                 : !format                 ? "a dtype that Python has a format for (use DLPack)"
                 : !contiguous             ? "a request for strides"
                                           : "a request to read: the array is read-only");
    return -1;
  }
  const size_t element = tg_dtype_bytes(view->dtype);
  *buffer = (tgi_py_buffer){
      .buf = view->data,
      .obj = Py_NewRef(self),
      .len = (Py_ssize_t)(numel * (int64_t)element),
      .itemsize = (Py_ssize_t)element,
      .readonly = !array->writable,
      .ndim = view->ndim,
      .format = flags & with_format ? (char *)(uintptr_t)format : NULL, /* nobody writes it */
      .shape = flags & with_shape ? array->extents : NULL,
      .strides = (flags & with_strides) == with_strides ? array->steps : NULL};
  return 0;
}
