#include "tensor_argument.h"

#include "tensor_export.h"
#include <string.h>

static bool is_numpy(PyObject *type)
{
  bool numpy = false;
  PyObject *module = PyObject_GetAttrString(type, "__module__");
  if (module && PyUnicode_Check(module)) {
    numpy = PyUnicode_CompareWithASCIIString(module, "numpy") == 0;
  }
  PyErr_Clear();
  Py_XDECREF(module);
  return numpy;
}

/* The type's table of functions if its version is supported, else NULL. */
static const DLPackExchangeAPI *exchange_api(PyObject *type)
{
  PyObject *capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
  const DLPackExchangeAPI *api = NULL;
  if (capsule && PyCapsule_CheckExact(capsule)) {
    const DLPackExchangeAPIHeader *header = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    while (header && header->version.major != 1) {
      header = header->prev_api;
    }
    api = (const DLPackExchangeAPI *)(const void *)header;
  }
  PyErr_Clear();
  Py_XDECREF(capsule); /* DLPack requires the table to be static */
  return api && api->dltensor_from_py_object_no_sync && api->current_work_stream ? api : NULL;
}

static bool is_torch(PyObject *type)
{
  PyObject *mark = PyObject_GetAttrString(type, "__torch_function__");
  PyErr_Clear();
  Py_XDECREF(mark);
  return mark != NULL;
}

/* A function of PyTorch's binding. NULL without an exception if it has none of this name. */
static PyObject *torch_function(const char *name)
{
  PyObject *torch = PyImport_ImportModule("torch");
  PyObject *binding = torch ? PyObject_GetAttrString(torch, "_C") : NULL;
  PyObject *function = binding ? PyObject_GetAttrString(binding, name) : NULL;
  PyErr_Clear();
  Py_XDECREF(torch);
  Py_XDECREF(binding);
  return function;
}

static const tgi_known_type *known_type(tgi_type_table *types, PyObject *type)
{
  for (int i = 0; i < types->count; i++) {
    if (types->known[i].type == type) {
      return &types->known[i];
    }
  }
  /* Before the place is chosen: reading attributes may run Python code that changes the table. */
  const DLPackExchangeAPI *api = exchange_api(type);
  const bool torch = is_torch(type);
  const tgi_known_type found = {
      .type = Py_NewRef(type),
      .api = api,
      .numpy = is_numpy(type),
      .torch = torch && !api,
      /* a build without CUDA has none */
      .current_stream = torch && !api ? torch_function("_cuda_getCurrentRawStream") : NULL,
      .num_threads = torch ? torch_function("get_num_threads") : NULL};
  tgi_known_type given_up = {0};
  tgi_known_type *place;
  if (types->count < TGI_KNOWN_TYPES) {
    place = &types->known[types->count++];
  } else {
    place = &types->known[types->next];
    types->next = (types->next + 1) % TGI_KNOWN_TYPES;
    given_up = *place;
  }
  *place = found;
  Py_XDECREF(given_up.type);
  Py_XDECREF(given_up.current_stream);
  Py_XDECREF(given_up.num_threads);
  return place;
}

int tgi_type_table_visit(tgi_type_table *types, visitproc visit, void *arg)
{
  for (int i = 0; i < types->count; i++) {
    Py_VISIT(types->known[i].type);
    Py_VISIT(types->known[i].current_stream);
    Py_VISIT(types->known[i].num_threads);
  }
  return 0;
}

void tgi_type_table_clear(tgi_type_table *types)
{
  while (types->count > 0) {
    types->count--;
    Py_CLEAR(types->known[types->count].type);
    Py_CLEAR(types->known[types->count].current_stream);
    Py_CLEAR(types->known[types->count].num_threads);
  }
}

static int fail(const tgi_arguments *arguments, PyObject *exception, const char *name,
                const char *format, ...)
{
  va_list values;
  va_start(values, format);
  PyObject *text = PyUnicode_FromFormatV(format, values);
  va_end(values);
  if (text) {
    PyErr_Format(exception, "%s: %s: %U", arguments->op, name, text);
    Py_DECREF(text);
  }
  return -1;
}

static tg_dtype dtype_of(DLDataType dtype)
{
  static const struct {
    uint8_t code, bits;
    tg_dtype dtype;
  } known[] = {{kDLFloat, 32, TG_F32}, {kDLBfloat, 16, TG_BF16}, {kDLFloat, 16, TG_F16},
               {kDLInt, 64, TG_I64},   {kDLInt, 32, TG_I32},     {kDLFloat, 64, TG_F64},
               {kDLInt, 8, TG_I8},     {kDLUInt, 8, TG_U8},      {kDLFloat8E4m3fn, 8, TG_F8_E4M3}};
  for (size_t i = 0; dtype.lanes == 1 && i < sizeof known / sizeof known[0]; i++) {
    if (dtype.code == known[i].code && dtype.bits == known[i].bits) {
      return known[i].dtype;
    }
  }
  return TG_DTYPE_NONE;
}

static int refuse_dtype(const tgi_arguments *arguments, const char *name, DLDataType dtype)
{
  static const char *const words[] = {"int", "uint", "float", NULL, "bfloat", "complex"};
  const size_t count = sizeof words / sizeof words[0];
  const char *word = dtype.lanes == 1 && dtype.code < count ? words[dtype.code] : NULL;
  if (dtype.code == kDLBool) {
    return fail(arguments, PyExc_TypeError, name, "expected a dtype of the library, got bool");
  }
  if (word) {
    return fail(arguments, PyExc_TypeError, name, "expected a dtype of the library, got %s%d", word,
                (int)dtype.bits);
  }
  return fail(arguments, PyExc_TypeError, name,
              "expected a dtype of the library, got DLPack code %d, %d bits, %d lanes",
              (int)dtype.code, (int)dtype.bits, (int)dtype.lanes);
}

static int read_device(const tgi_arguments *arguments, const char *name, DLDevice device,
                       int32_t *out)
{
  if (device.device_type == kDLCPU || device.device_type == kDLCUDAHost) {
    *out = TG_DEVICE_CPU;
    return 0;
  }
  if (device.device_type == kDLCUDA || device.device_type == kDLCUDAManaged) {
    *out = TG_DEVICE_CUDA(device.device_id);
    return 0;
  }
  return fail(arguments, PyExc_NotImplementedError, name,
              "expected memory of the CPU or of a CUDA device, got DLPack device type %d",
              (int)device.device_type);
}

/* Whether two elements of the view may share memory. With axes sorted by stride, each stride must
 * exceed the range of the axes before it. */
static bool may_overlap_itself(const tg_tensor *view)
{
  int64_t reach = 0, done = 0;
  for (int n = 0; n < view->ndim; n++) {
    int next = -1;
    for (int i = 0; i < view->ndim; i++) {
      if (!(done & (int64_t)1 << i) && (next < 0 || view->stride[i] < view->stride[next])) {
        next = i;
      }
    }
    done |= (int64_t)1 << next;
    if (view->shape[next] > 1) {
      if (view->stride[next] <= reach) {
        return true;
      }
      reach += (view->shape[next] - 1) * view->stride[next];
    }
  }
  return false;
}

/* Strides of axes with one element have no meaning and are replaced. All strides zero mean
 * contiguous in the library, but one element broadcast everywhere in DLPack. */
static int read_extents(const tgi_arguments *arguments, const char *name, const DLTensor *from,
                        bool writes, tg_tensor *view)
{
  int64_t numel = 1, dense = 1;
  bool contiguous = true, broadcast = false;
  for (int i = from->ndim - 1; i >= 0; i--) {
    view->shape[i] = from->shape[i];
    view->stride[i] = from->strides && from->shape[i] > 1 ? from->strides[i] : dense;
    contiguous = contiguous && (from->shape[i] <= 1 || view->stride[i] == dense);
    broadcast = broadcast || (from->shape[i] > 1 && view->stride[i] == 0);
    dense *= from->shape[i];
    numel *= from->shape[i];
  }
  if (contiguous || numel == 0) {
    memset(view->stride, 0, sizeof view->stride);
    return numel != 0 && !view->data
               ? fail(arguments, PyExc_ValueError, name,
                      "expected a tensor with memory, got one without (a fake, functional or "
                      "wrapped tensor)")
               : 0;
  }
  if (!view->data) {
    return fail(arguments, PyExc_ValueError, name,
                "expected a tensor with memory, got one without (a fake, functional or wrapped "
                "tensor)");
  }
  if (broadcast) {
    return fail(arguments, PyExc_ValueError, name, "expected no broadcast axis, got stride 0");
  }
  if (writes && may_overlap_itself(view)) {
    return fail(arguments, PyExc_ValueError, name,
                "expected a view whose elements lie apart, got an overlap");
  }
  return 0;
}

static int read_view(tgi_arguments *arguments, const char *name, const DLTensor *from, bool writes,
                     tg_tensor *view)
{
  if (from->ndim < 0 || from->ndim > TG_MAX_NDIM) {
    return fail(arguments, PyExc_ValueError, name, "expected rank 0 to %d, got rank %d",
                TG_MAX_NDIM, (int)from->ndim);
  }
  view->dtype = dtype_of(from->dtype);
  if (view->dtype == TG_DTYPE_NONE) {
    return refuse_dtype(arguments, name, from->dtype);
  }
  if (read_device(arguments, name, from->device, &view->device) < 0) {
    return -1;
  }
  view->ndim = from->ndim;
  view->data = from->data ? (char *)from->data + from->byte_offset : NULL;
  arguments->f64 = arguments->f64 || view->dtype == TG_F64;
  if (arguments->device == 0) {
    arguments->device = view->device;
  }
  return read_extents(arguments, name, from, writes, view);
}

static int read_by_exchange(tgi_arguments *arguments, const char *name, PyObject *object,
                            const DLPackExchangeAPI *api, bool writes, tg_tensor *view)
{
  DLTensor from;
  if (api->dltensor_from_py_object_no_sync(object, &from) < 0 ||
      read_view(arguments, name, &from, writes, view) < 0) {
    return -1;
  }
  if (view->device >= TG_DEVICE_CUDA(0) && !arguments->has_stream) {
    void *stream = NULL;
    if (api->current_work_stream(kDLCUDA, view->device - TG_DEVICE_CUDA(0), &stream) < 0) {
      return -1;
    }
    if (arguments->foreign_cuda && stream) {
      return fail(arguments, PyExc_NotImplementedError, name,
                  "expected this tensor before arrays of other libraries, got its stream too late");
    }
    arguments->stream = stream;
    arguments->has_stream = true;
  }
  return 0;
}

/* Keeps the capsule until the end of the call. It then frees its tensor, since nobody consumed it.
 */
static int keep_capsule(tgi_arguments *arguments, PyObject *capsule)
{
  if (!arguments->exporters) {
    arguments->exporters = PyList_New(0);
  }
  return arguments->exporters ? PyList_Append(arguments->exporters, capsule) : -1;
}

static int read_capsule(tgi_arguments *arguments, const char *name, PyObject *object,
                        PyObject *capsule, bool numpy, DLDataType meant, bool writes,
                        tg_tensor *view)
{
  DLTensor from;
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    const DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (managed->version.major != 1) {
      return fail(arguments, PyExc_BufferError, name, "expected DLPack 1, got version %d",
                  (int)managed->version.major);
    }
    if (writes && (managed->flags & DLPACK_FLAG_READ_ONLY)) {
      return fail(arguments, PyExc_ValueError, name,
                  "expected memory that may be written, got a read-only array");
    }
    from = managed->dl_tensor;
  } else if (PyCapsule_IsValid(capsule, "dltensor")) {
    /* Capsules without a version have no read-only flag, and JAX's arrays are read-only. NumPy
     * refuses to export read-only arrays in this form. */
    if (writes && !numpy) {
      return fail(arguments, PyExc_ValueError, name,
                  "expected memory that may be written, got a %R, which does not say so",
                  Py_TYPE(object));
    }
    from = ((const DLManagedTensor *)PyCapsule_GetPointer(capsule, "dltensor"))->dl_tensor;
  } else {
    return fail(arguments, PyExc_TypeError, name, "expected a DLPack capsule from %R, got %R",
                Py_TYPE(object), Py_TYPE(capsule));
  }
  if (meant.bits) {
    from.dtype = meant;
  }
  return read_view(arguments, name, &from, writes, view);
}

static int read_by_capsule(tgi_arguments *arguments, const char *name, PyObject *object,
                           const tgi_known_type *type, bool writes, tg_tensor *view)
{
  DLDataType meant = {0};
  PyObject *capsule = tgi_export(arguments, object, type, &meant);
  if (!capsule) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
      return -1;
    }
    PyErr_Clear();
    return fail(arguments, PyExc_TypeError, name, "expected a tensor, got %R", Py_TYPE(object));
  }
  int status = read_capsule(arguments, name, object, capsule, type->numpy, meant, writes, view);
  if (status == 0) {
    status = keep_capsule(arguments, capsule);
  }
  Py_DECREF(capsule);
  return status;
}

int tgi_read_tensor(tgi_arguments *arguments, const char *name, PyObject *object, bool writes,
                    tg_tensor *view)
{
  const tgi_known_type *type = known_type(arguments->types, (PyObject *)Py_TYPE(object));
  if (!arguments->num_threads) {
    arguments->num_threads = type->num_threads;
  }
  if (type->api) {
    return read_by_exchange(arguments, name, object, type->api, writes, view);
  }
  /* A copy, since Python code run below may change the table. PyTorch keeps its functions alive. */
  const tgi_known_type copy = *type;
  return read_by_capsule(arguments, name, object, &copy, writes, view);
}
