#include "id_rows.h"

#include "context_pool.h"
#include "status_exception.h"

#include <stdlib.h>
#include <string.h>

static int out_of_range(const tgi_id_use *use, const tgi_id_rows *rows, int64_t index,
                        PyObject *value)
{
  if (rows->is_one) {
    PyErr_Format(PyExc_ValueError, "%s: %s[%lld]: expected %lld to %lld, got %R", use->op,
                 use->name, (long long)index, (long long)use->least, (long long)use->most, value);
  } else {
    PyErr_Format(PyExc_ValueError, "%s: %s[%lld, %lld]: expected %lld to %lld, got %R", use->op,
                 use->name, (long long)(index / rows->length), (long long)(index % rows->length),
                 (long long)use->least, (long long)use->most, value);
  }
  return -1;
}

static int check_id(const tgi_id_use *use, const tgi_id_rows *rows, int64_t index, int64_t id)
{
  if (id >= use->least && id <= use->most) {
    return 0;
  }
  PyObject *value = PyLong_FromLongLong(id);
  const int status = value ? out_of_range(use, rows, index, value) : -1;
  Py_XDECREF(value);
  return status;
}

static int take_memory(tgi_id_rows *rows)
{
  const size_t count = (size_t)(rows->rows * rows->length);
  rows->ids = malloc((count + 1) * sizeof *rows->ids);
  if (!rows->ids) {
    PyErr_NoMemory();
    return -1;
  }
  return 0;
}

static int refuse_shape(const tgi_id_use *use, const char *got)
{
  PyErr_Format(PyExc_ValueError,
               "%s: %s: expected [tokens] or [rows, tokens] with one or more of both, got %s",
               use->op, use->name, got);
  return -1;
}

/* ---- lists ---- */

static bool is_list(PyObject *object)
{
  return PyList_Check(object) || PyTuple_Check(object);
}

/* A row of a list of lists, or the list itself. */
static int read_list(const tgi_id_use *use, PyObject *list, tgi_id_rows *rows, int64_t row)
{
  for (int64_t i = 0; i < rows->length; i++) {
    PyObject *item = PySequence_GetItem(list, (Py_ssize_t)i);
    PyObject *number = item ? PyNumber_Index(item) : NULL;
    const int64_t id = number ? PyLong_AsLongLong(number) : -1;
    int status = number ? 0 : -1;
    if (number && id == -1 && PyErr_Occurred()) { /* beyond 64 bits */
      PyErr_Clear();
      status = out_of_range(use, rows, row * rows->length + i, number);
    } else if (!number && item && PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Format(PyExc_TypeError, "%s: %s: expected ints, got %R", use->op, use->name,
                   Py_TYPE(item));
    }
    status = status ? status : check_id(use, rows, row * rows->length + i, id);
    Py_XDECREF(number);
    Py_XDECREF(item);
    if (status < 0) {
      return -1;
    }
    rows->ids[row * rows->length + i] = (int32_t)id;
  }
  return 0;
}

static int read_lists(const tgi_id_use *use, PyObject *object, tgi_id_rows *rows)
{
  const Py_ssize_t size = PySequence_Size(object);
  PyObject *first = size > 0 ? PySequence_GetItem(object, 0) : NULL;
  if (!first) {
    return size < 0 || PyErr_Occurred() ? -1 : refuse_shape(use, "an empty list");
  }
  rows->is_one = !is_list(first);
  rows->rows = rows->is_one ? 1 : size;
  rows->length = rows->is_one ? size : PySequence_Size(first);
  rows->dtype = TG_I64;
  Py_DECREF(first);
  if (rows->length == 0) {
    return refuse_shape(use, "an empty row");
  }
  if (take_memory(rows) < 0) {
    return -1;
  }
  if (rows->is_one) {
    return read_list(use, object, rows, 0);
  }
  int status = 0;
  for (int64_t r = 0; r < rows->rows && status == 0; r++) {
    PyObject *row = PySequence_GetItem(object, (Py_ssize_t)r);
    if (!row) {
      return -1;
    }
    if (!is_list(row) || PySequence_Size(row) != rows->length) {
      PyErr_Format(PyExc_ValueError,
                   "%s: %s[%lld]: expected a row of %lld tokens like the first, "
                   "got %R",
                   use->op, use->name, (long long)r, (long long)rows->length, row);
      status = -1;
    }
    status = status ? status : read_list(use, row, rows, r);
    Py_DECREF(row);
  }
  return status;
}

/* ---- arrays ---- */

static int read_elements(const tgi_id_use *use, const tg_tensor *view, tgi_id_rows *rows)
{
  const int last = view->ndim - 1;
  bool dense = true;
  for (int i = 0; i < view->ndim; i++) {
    dense = dense && view->stride[i] == 0;
  }
  const int64_t step = dense ? 1 : view->stride[last];
  const int64_t row_step = last == 0 ? 0 : dense ? rows->length : view->stride[0];
  for (int64_t r = 0; r < rows->rows; r++) {
    for (int64_t i = 0; i < rows->length; i++) {
      const int64_t at = r * row_step + i * step, index = r * rows->length + i;
      const int64_t id = view->dtype == TG_I64 ? ((const int64_t *)view->data)[at]
                                               : ((const int32_t *)view->data)[at];
      if (check_id(use, rows, index, id) < 0) {
        return -1;
      }
      rows->ids[index] = (int32_t)id;
    }
  }
  return 0;
}

/* A GPU's rows in host memory, which *view then describes; to be freed. */
static void *fetch(const tgi_id_use *use, const tgi_arguments *arguments, tg_tensor *view)
{
  const int last = view->ndim - 1;
  const size_t element = tg_dtype_bytes(view->dtype);
  const bool dense = view->stride[0] == 0 && view->stride[last] == 0;
  const size_t row = (size_t)view->shape[last] * element;
  const size_t count = last > 0 ? (size_t)view->shape[0] : 1;
  const size_t step = dense || last == 0 ? row : (size_t)view->stride[0] * element;
  if (!dense && view->stride[last] != 1) {
    PyErr_Format(PyExc_ValueError,
                 "%s: %s: expected a last axis that is contiguous, got stride "
                 "%lld",
                 use->op, use->name, (long long)view->stride[last]);
    return NULL;
  }
  void *memory = malloc(row * count);
  tg_error error = {0};
  tgi_pooled_context *context =
      memory ? tgi_context_take(TG_BACKEND_CUDA, view->device - TG_DEVICE_CUDA(0),
                                arguments->stream, 0, &error)
             : NULL;
  tg_status status = memory ? error.status : TG_NO_MEMORY;
  if (context) {
    Py_BEGIN_ALLOW_THREADS status =
        tg_memory_copy(context->ctx, memory, row, view->data, step, row, count);
    Py_END_ALLOW_THREADS if (status != TG_OK)
    {
      PyOS_snprintf(error.text, sizeof error.text, "%s", tg_context_message(context->ctx));
    }
    tgi_context_give_back(context);
  }
  if (status != TG_OK) {
    free(memory);
    tgi_raise_status(status, error.text);
    return NULL;
  }
  view->data = memory;
  memset(view->stride, 0, sizeof view->stride);
  return memory;
}

static int check_view(const tgi_id_use *use, const tg_tensor *view)
{
  if (view->dtype != TG_I32 && view->dtype != TG_I64) {
    PyErr_Format(PyExc_TypeError, "%s: %s: expected i32 or i64, got %s", use->op, use->name,
                 tg_dtype_name(view->dtype));
    return -1;
  }
  if (view->ndim < 1 || view->ndim > 2 || view->shape[0] < 1 || view->shape[view->ndim - 1] < 1) {
    char got[64];
    PyOS_snprintf(got, sizeof got, view->ndim == 2 ? "[%lld, %lld]" : "rank %lld",
                  (long long)(view->ndim == 2 ? view->shape[0] : view->ndim),
                  (long long)view->shape[1]);
    return refuse_shape(use, view->ndim == 1 ? "[0]" : got);
  }
  if (view->device >= TG_DEVICE_CUDA(0) && view->device != use->device) {
    char wanted[24] = "";
    if (use->device >= TG_DEVICE_CUDA(0)) {
      PyOS_snprintf(wanted, sizeof wanted, " or of cuda:%d", (int)use->device - TG_DEVICE_CUDA(0));
    }
    PyErr_Format(PyExc_ValueError, "%s: %s: expected memory of the CPU%s, got cuda:%d", use->op,
                 use->name, wanted, (int)view->device - TG_DEVICE_CUDA(0));
    return -1;
  }
  return 0;
}

static int read_array(const tgi_id_use *use, PyObject *object, tgi_id_rows *rows)
{
  tgi_arguments arguments = {.types = use->types, .op = use->op};
  tg_tensor view = {0};
  int status = tgi_read_tensor(&arguments, use->name, object, false, &view);
  status = status ? status : check_view(use, &view);
  void *fetched = NULL;
  if (status == 0 && view.device >= TG_DEVICE_CUDA(0)) {
    fetched = fetch(use, &arguments, &view);
    status = fetched ? 0 : -1;
  }
  if (status == 0) {
    rows->is_one = view.ndim == 1;
    rows->rows = rows->is_one ? 1 : view.shape[0];
    rows->length = view.shape[view.ndim - 1];
    rows->dtype = view.dtype;
    status = take_memory(rows);
  }
  status = status ? status : read_elements(use, &view, rows);
  free(fetched);
  Py_XDECREF(arguments.exporters);
  return status;
}

int tgi_read_ids(const tgi_id_use *use, PyObject *object, tgi_id_rows *out)
{
  *out = (tgi_id_rows){0};
  const int status = is_list(object) ? read_lists(use, object, out) : read_array(use, object, out);
  if (status < 0) {
    free(out->ids);
    out->ids = NULL;
  }
  return status;
}

PyObject *tgi_ids_object(const int32_t *ids, int64_t count)
{
  PyObject *list = PyList_New((Py_ssize_t)count);
  for (int64_t i = 0; list && i < count; i++) {
    PyObject *id = PyLong_FromLong(ids[i]);
    if (!id || PyList_SetItem(list, (Py_ssize_t)i, id) < 0) {
      Py_CLEAR(list);
    }
  }
  return list;
}
