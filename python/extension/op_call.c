#include "op_call.h"

#include "context_pool.h"
#include "op_description.h"
#include "status_exception.h"
#include <string.h>

static int read_list(tgi_op_call *call, const tg_slot_info *slot, PyObject *value, void *field)
{
  PyObject *items = PySequence_Tuple(value);
  if (!items) {
    return -1;
  }
  /* The views are in a bytes object among the exporters, which live as long as the call. */
  const Py_ssize_t count = PyTuple_Size(items);
  PyObject *memory = PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(tg_tensor));
  int status = memory ? 0 : -1;
  if (status == 0 && !call->tensors.exporters) {
    call->tensors.exporters = PyList_New(0);
  }
  if (status == 0 &&
      (!call->tensors.exporters || PyList_Append(call->tensors.exporters, memory) < 0)) {
    status = -1;
  }
  if (status == 0) {
    tg_tensor *views = (tg_tensor *)(void *)PyBytes_AsString(memory);
    memset(views, 0, (size_t)(count + 1) * sizeof *views);
    for (Py_ssize_t i = 0; i < count && status == 0; i++) {
      char name[96];
      PyOS_snprintf(name, sizeof name, "%s[%zd]", slot->name, i);
      status = tgi_read_tensor(&call->tensors, name, PyTuple_GetItem(items, i),
                               slot->role != TG_ROLE_IN, &views[i]);
    }
    memcpy(field, &views, sizeof views);
  }
  for (size_t i = 0; i < call->info->num_slots && status == 0; i++) {
    const tg_slot_info *other = &call->info->slots[i];
    if (strcmp(other->name, "num_tensors") == 0) {
      int64_t *length = (int64_t *)(void *)(call->args.fields + other->offset);
      if (*length != 0 && *length != count) {
        PyErr_Format(PyExc_ValueError, "%s: %s: expected %lld tensors, got %zd", call->info->name,
                     slot->name, (long long)*length, count);
        status = -1;
      }
      *length = count;
    }
  }
  Py_XDECREF(memory);
  Py_DECREF(items);
  return status;
}

/* Replaces the message of the current exception with one that names the argument. */
static int name_number(const tgi_op_call *call, const tg_slot_info *slot, const char *expected,
                       PyObject *value)
{
  PyObject *type = PyErr_ExceptionMatches(PyExc_TypeError) ? PyExc_TypeError : PyExc_OverflowError;
  PyErr_Format(type, "%s: %s: expected %s, got %R", call->info->name, slot->name, expected, value);
  return -1;
}

static int read_integer(const tgi_op_call *call, const tg_slot_info *slot, PyObject *value,
                        void *field)
{
  const long long number = PyLong_AsLongLong(value);
  if (number == -1 && PyErr_Occurred()) {
    return name_number(call, slot, "an integer", value);
  }
  if (slot->kind == TG_KIND_I64) {
    const int64_t wide = number;
    memcpy(field, &wide, sizeof wide);
    return 0;
  }
  if (number < INT32_MIN || number > INT32_MAX) {
    PyErr_Format(PyExc_OverflowError, "%s: %s: expected an integer of 32 bits, got %lld",
                 call->info->name, slot->name, number);
    return -1;
  }
  const int32_t narrow = (int32_t)number; /* enums are int-sized */
  memcpy(field, &narrow, sizeof narrow);
  return 0;
}

static int read_scalar(const tgi_op_call *call, const tg_slot_info *slot, PyObject *value,
                       void *field)
{
  if (slot->kind == TG_KIND_BOOL) {
    const int truth = PyObject_IsTrue(value);
    const bool flag = truth > 0;
    memcpy(field, &flag, sizeof flag);
    return truth < 0 ? -1 : 0;
  }
  if (slot->kind != TG_KIND_F32 && slot->kind != TG_KIND_F64) {
    return read_integer(call, slot, value, field);
  }
  const double number = PyFloat_AsDouble(value);
  if (number == -1 && PyErr_Occurred()) {
    return name_number(call, slot, "a number", value);
  }
  if (slot->kind == TG_KIND_F64) {
    memcpy(field, &number, sizeof number);
  } else {
    const float rounded = (float)number;
    memcpy(field, &rounded, sizeof rounded);
  }
  return 0;
}

static void set_workspace_bytes(tgi_op_call *call, size_t bytes)
{
  for (size_t i = 0; i < call->info->num_slots; i++) {
    if (call->info->slots[i].kind == TG_KIND_SIZE) {
      memcpy(call->args.fields + call->info->slots[i].offset, &bytes, sizeof bytes);
    }
  }
}

static int set_workspace(tgi_op_call *call, size_t slot_index, PyObject *value)
{
  tg_tensor view = {0};
  if (tgi_read_tensor(&call->tensors, "workspace", value, true, &view) < 0) {
    return -1;
  }
  memcpy(call->args.fields + call->info->slots[slot_index].offset, &view.data, sizeof view.data);
  set_workspace_bytes(call,
                      view.ndim == 1 ? (size_t)view.shape[0] * tg_dtype_bytes(view.dtype) : 0);
  return 0;
}

int tgi_read_slot(tgi_op_call *call, size_t index, PyObject *value)
{
  const tg_slot_info *slot = &call->info->slots[index];
  void *field = call->args.fields + slot->offset;
  if (value == Py_None) {
    return 0; /* absent, or zero */
  }
  switch (slot->kind) {
  case TG_KIND_TENSOR:
    return tgi_read_tensor(&call->tensors, slot->name, value, slot->role != TG_ROLE_IN, field);
  case TG_KIND_TENSOR_LIST:
    return read_list(call, slot, value, field);
  case TG_KIND_WORKSPACE:
    if (PyCallable_Check(value)) {
      call->allocate = value;
      return 0;
    }
    return set_workspace(call, index, value);
  default:
    return read_scalar(call, slot, value, field);
  }
}

/* The slot that a keyword names; num_slots if none. */
static size_t find_slot(const tg_op_info *info, PyObject *keyword)
{
  size_t i = 0;
  while (i < info->num_slots && (tgi_is_implied(&info->slots[i]) ||
                                 PyUnicode_CompareWithASCIIString(keyword, info->slots[i].name))) {
    i++;
  }
  return i;
}

/* Positional arguments come in the order of the slots, without the implied ones. */
int tgi_read_arguments(tgi_op_call *call, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames)
{
  const tg_op_info *info = call->info;
  Py_ssize_t used = 0;
  for (size_t i = 0; i < info->num_slots && used < nargs; i++) {
    if (!tgi_is_implied(&info->slots[i]) && tgi_read_slot(call, i, args[used++]) < 0) {
      return -1;
    }
  }
  if (used < nargs) {
    PyErr_Format(PyExc_TypeError, "%s: args: expected at most %zd arguments, got %zd", info->name,
                 used, nargs);
    return -1;
  }
  const Py_ssize_t num_keywords = kwnames ? PyTuple_Size(kwnames) : 0;
  for (Py_ssize_t k = 0; k < num_keywords; k++) {
    PyObject *keyword = PyTuple_GetItem(kwnames, k);
    const size_t index = find_slot(info, keyword);
    Py_ssize_t position = 0;
    for (size_t i = 0; i < index; i++) {
      position += !tgi_is_implied(&info->slots[i]);
    }
    if (index == info->num_slots || position < nargs) {
      PyErr_Format(PyExc_TypeError, "%s: %U: expected %s", info->name, keyword,
                   index == info->num_slots ? "the name of an argument" : "one value, got two");
      return -1;
    }
    if (tgi_read_slot(call, index, args[nargs + k]) < 0) {
      return -1;
    }
  }
  return 0;
}

static int give_workspace(tgi_op_call *call, size_t bytes)
{
  PyObject *memory =
      call->like ? PyObject_CallFunction(call->allocate, "On", call->like, (Py_ssize_t)bytes)
                 : PyObject_CallFunction(call->allocate, "n", (Py_ssize_t)bytes);
  if (!memory) {
    return -1;
  }
  int status = 0;
  for (size_t i = 0; i < call->info->num_slots && status == 0; i++) {
    if (call->info->slots[i].kind == TG_KIND_WORKSPACE) {
      status = set_workspace(call, i, memory);
    }
  }
  if (status == 0 && !call->tensors.exporters) {
    call->tensors.exporters = PyList_New(0);
    status = call->tensors.exporters ? 0 : -1;
  }
  if (status == 0) {
    status = PyList_Append(call->tensors.exporters, memory);
  }
  Py_DECREF(memory);
  return status;
}

/* Only the reference computes f64. */
static tg_backend backend_of(const tgi_arguments *tensors)
{
  if (tensors->device >= TG_DEVICE_CUDA(0)) {
    return TG_BACKEND_CUDA;
  }
  return tensors->f64 ? TG_BACKEND_REF : TG_BACKEND_CPU;
}

/* The field of the workspace if the caller has given neither memory nor a function, else NULL. */
static void **missing_workspace(tgi_op_call *call)
{
  for (size_t i = 0; i < call->info->num_slots && !call->allocate; i++) {
    void **field = (void **)(void *)(call->args.fields + call->info->slots[i].offset);
    if (call->info->slots[i].kind == TG_KIND_WORKSPACE && !*field) {
      return field;
    }
  }
  return NULL;
}

/* Runs the op; `missing`: where to put a workspace of `bytes` bytes, which lives as long as the
 * call. Freeing it waits for a GPU. */
static tg_status run_alone(tgi_op_call *call, tg_context *ctx, void **missing, size_t bytes)
{
  tg_status status = missing ? tg_memory_allocate(ctx, bytes, missing) : TG_OK;
  if (status != TG_OK) {
    return status;
  }
  if (missing) {
    set_workspace_bytes(call, bytes);
  }
  status = call->info->run(ctx, call->args.fields);
  if (missing) {
    tg_memory_free(ctx, *missing);
  }
  return status;
}

/* PyTorch's number of threads for its tensors, which torch.set_num_threads changes; 0, the
 * library's default, for other arrays. -1 with an exception set on failure. */
static int32_t threads_for(const tgi_arguments *tensors, tg_backend backend)
{
  if (backend == TG_BACKEND_CUDA || !tensors->num_threads) {
    return 0;
  }
  PyObject *number = PyObject_CallNoArgs(tensors->num_threads);
  const long threads = number ? PyLong_AsLong(number) : -1;
  Py_XDECREF(number);
  if (threads == -1 && PyErr_Occurred()) {
    return -1;
  }
  return threads > 0 && threads <= INT32_MAX ? (int32_t)threads : 0;
}

static int run_on(tgi_op_call *call, tg_context *ctx, size_t *bytes)
{
  tg_status status = TG_OK;
  void **missing = call->sizing ? NULL : missing_workspace(call);
  if (call->sizing || call->allocate || missing) {
    status = call->info->workspace(ctx, call->args.fields, bytes);
    if (status != TG_OK) {
      return tgi_raise_status(status, tg_context_message(ctx));
    }
  }
  if (call->sizing || (call->allocate && *bytes > 0 && give_workspace(call, *bytes) < 0)) {
    return call->sizing ? 0 : -1;
  }
  Py_BEGIN_ALLOW_THREADS status = run_alone(call, ctx, missing, *bytes);
  Py_END_ALLOW_THREADS return status == TG_OK ? 0
                                              : tgi_raise_status(status, tg_context_message(ctx));
}

int tgi_run_call(tgi_op_call *call, size_t *bytes)
{
  const tg_backend backend = backend_of(&call->tensors);
  const int32_t index = backend == TG_BACKEND_CUDA ? call->tensors.device - TG_DEVICE_CUDA(0) : 0;
  const int32_t num_threads = threads_for(&call->tensors, backend);
  if (num_threads < 0) {
    return -1;
  }
  tg_error error = {0};
  tgi_pooled_context *context =
      tgi_context_take(backend, index, call->tensors.stream, num_threads, &error);
  if (!context) {
    return tgi_raise_status(error.status, error.text);
  }
  const int result = run_on(call, context->ctx, bytes);
  tgi_context_give_back(context);
  return result;
}
