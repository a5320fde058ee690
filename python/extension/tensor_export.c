#include "tensor_export.h"

static int ask_for_stream(tgi_arguments *arguments, PyObject *current_stream, int device_index)
{
  PyObject *number = PyObject_CallFunction(current_stream, "i", device_index);
  void *stream = number ? PyLong_AsVoidPtr(number) : NULL;
  Py_XDECREF(number);
  if (PyErr_Occurred()) {
    return -1;
  }
  if (arguments->foreign_cuda && stream) {
    PyErr_Format(PyExc_NotImplementedError,
                 "%s: expected tensors of PyTorch before arrays of other libraries, got its stream "
                 "too late",
                 arguments->op);
    return -1;
  }
  arguments->stream = stream;
  arguments->has_stream = true;
  return 0;
}

/* Keyword arguments of __dlpack__: the newest supported version, and on a GPU the stream of the op.
 */
static PyObject *export_options(tgi_arguments *arguments, PyObject *object, bool versioned,
                                const tgi_known_type *type)
{
  PyObject *options = PyDict_New();
  PyObject *version = versioned ? Py_BuildValue("(ii)", 1, 3) : NULL;
  if (options && version && PyDict_SetItemString(options, "max_version", version) < 0) {
    Py_CLEAR(options);
  }
  Py_XDECREF(version);
  if (!options || type->numpy) {
    return options;
  }
  PyObject *device = PyObject_CallMethod(object, "__dlpack_device__", NULL);
  int kind = 0, index = 0;
  if (!device || !PyArg_ParseTuple(device, "ii", &kind, &index)) {
    Py_CLEAR(options);
  } else if (kind == kDLCUDA || kind == kDLCUDAManaged) {
    if (type->current_stream && !arguments->has_stream &&
        ask_for_stream(arguments, type->current_stream, index) < 0) {
      Py_CLEAR(options);
    }
    /* 1 is DLPack's number of the legacy default stream, CUDA's NULL. */
    arguments->foreign_cuda = arguments->foreign_cuda || !arguments->stream;
    PyObject *stream =
        arguments->stream ? PyLong_FromVoidPtr(arguments->stream) : PyLong_FromLong(1);
    if (!options || !stream || PyDict_SetItemString(options, "stream", stream) < 0) {
      Py_CLEAR(options);
    }
    Py_XDECREF(stream);
  }
  Py_XDECREF(device);
  return options;
}

static PyObject *export_capsule(tgi_arguments *arguments, PyObject *object, bool versioned,
                                const tgi_known_type *type)
{
  PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
  PyObject *none = method ? PyTuple_New(0) : NULL;
  PyObject *options = none ? export_options(arguments, object, versioned, type) : NULL;
  PyObject *capsule = options ? PyObject_Call(method, none, options) : NULL;
  Py_XDECREF(options);
  Py_XDECREF(none);
  Py_XDECREF(method);
  if (!capsule && versioned && method && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear(); /* older than max_version */
    return export_capsule(arguments, object, false, type);
  }
  return capsule;
}

/* NumPy does not export the dtypes of ml_dtypes: exports their bits, and sets *dtype to the dtype.
 */
static PyObject *export_bits(tgi_arguments *arguments, PyObject *array, const tgi_known_type *numpy,
                             DLDataType *dtype)
{
  static const struct {
    const char *name, *bits;
    DLDataType dtype;
  } known[] = {{"bfloat16", "u2", {kDLBfloat, 16, 1}},
               {"float8_e4m3fn", "u1", {kDLFloat8E4m3fn, 8, 1}}};
  PyObject *capsule = NULL, *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *described = PyObject_GetAttrString(array, "dtype");
  PyObject *name = described ? PyObject_GetAttrString(described, "name") : NULL;
  for (size_t i = 0; name && i < sizeof known / sizeof known[0]; i++) {
    if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, known[i].name) == 0) {
      PyObject *bits = PyObject_CallMethod(array, "view", "s", known[i].bits);
      capsule = bits ? export_capsule(arguments, bits, true, numpy) : NULL;
      *dtype = known[i].dtype;
      Py_XDECREF(bits);
    }
  }
  Py_XDECREF(name);
  Py_XDECREF(described);
  if (capsule) {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
  } else {
    PyErr_Restore(type, value, traceback);
  }
  return capsule;
}

PyObject *tgi_export(tgi_arguments *arguments, PyObject *object, const tgi_known_type *type,
                     DLDataType *meant)
{
  /* PyTorch exports no tensor that requires its gradient. */
  PyObject *shown = type->torch ? PyObject_CallMethod(object, "detach", NULL) : Py_NewRef(object);
  PyObject *capsule = shown ? export_capsule(arguments, shown, true, type) : NULL;
  Py_XDECREF(shown);
  if (!capsule && type->numpy && PyErr_ExceptionMatches(PyExc_BufferError)) {
    capsule = export_bits(arguments, object, type, meant);
  }
  return capsule;
}
