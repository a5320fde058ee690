#include "weight_packing.h"

#include "status_exception.h"
#include <string.h>

enum { NAME_BYTES = 24 };

typedef struct source {
  char name[NAME_BYTES];
  tg_tensor weight, scale, zero_point, packed;
  int64_t columns, group_size;
} source;

static bool is_experts(const source *s)
{
  return strcmp(s->name, "grouped_linear_mxfp4") == 0;
}

static int64_t packed_bytes(const source *s)
{
  if (is_experts(s)) { /* beyond a view: an extent that gives no bytes either */
    const int64_t groups = s->weight.shape[2];
    return tg_grouped_linear_mxfp4_packed_bytes(s->weight.shape[0], s->weight.shape[1],
                                                groups > INT64_MAX / 32 ? -1 : 32 * groups);
  }
  if (strcmp(s->name, "linear_int8") == 0) {
    return tg_linear_int8_packed_bytes(s->weight.shape[0], s->weight.shape[1]);
  }
  if (strcmp(s->name, "linear_fp8") == 0) {
    return tg_linear_fp8_packed_bytes(s->weight.shape[0], s->weight.shape[1]);
  }
  return tg_linear_int4_packed_bytes(&(tg_linear_int4_pack_source){.weight = s->weight,
                                                                   .scale = s->scale,
                                                                   .zero_point = s->zero_point,
                                                                   .in = s->columns,
                                                                   .group_size = s->group_size});
}

static tg_status pack(const source *s, tg_error *error)
{
  if (is_experts(s)) {
    return tg_grouped_linear_mxfp4_pack(&(tg_grouped_linear_mxfp4_pack_source){.blocks = s->weight,
                                                                               .scales = s->scale,
                                                                               .packed = s->packed},
                                        error);
  }
  if (strcmp(s->name, "linear_int8") == 0) {
    return tg_linear_int8_pack(&(tg_linear_int8_pack_source){.weight = s->weight,
                                                             .scale = s->scale,
                                                             .zero_point = s->zero_point,
                                                             .packed = s->packed},
                               error);
  }
  if (strcmp(s->name, "linear_fp8") == 0) {
    return tg_linear_fp8_pack(
        &(tg_linear_fp8_pack_source){.weight = s->weight, .scale = s->scale, .packed = s->packed},
        error);
  }
  return tg_linear_int4_pack(&(tg_linear_int4_pack_source){.weight = s->weight,
                                                           .scale = s->scale,
                                                           .zero_point = s->zero_point,
                                                           .packed = s->packed,
                                                           .in = s->columns,
                                                           .group_size = s->group_size},
                             error);
}

/* Packing reads and writes the host's memory. */
static int on_host(const char *op, const char *name, const tg_tensor *view)
{
  if (view->dtype != TG_DTYPE_NONE && view->device != TG_DEVICE_CPU) {
    PyErr_Format(PyExc_ValueError, "%s: %s: expected memory of the CPU, got a GPU's", op, name);
    return -1;
  }
  return 0;
}

static int read_source(tgi_arguments *arguments, PyObject *args, PyObject *named, bool writes,
                       source *out)
{
  static char *names[] = {"op",     "weight",  "scale",      "zero_point",
                          "packed", "columns", "group_size", NULL};
  const char *op = NULL;
  PyObject *objects[4] = {NULL, NULL, Py_None, Py_None};
  long long columns = 0, group_size = 0;
  if (!PyArg_ParseTupleAndKeywords(args, named, "sOO|OOLL:pack", names, &op, &objects[0],
                                   &objects[1], &objects[2], &objects[3], &columns, &group_size)) {
    return -1;
  }
  if (strcmp(op, "linear_int8") != 0 && strcmp(op, "linear_int4") != 0 &&
      strcmp(op, "linear_fp8") != 0 && strcmp(op, "grouped_linear_mxfp4") != 0) {
    PyErr_Format(PyExc_ValueError,
                 "pack: op: expected linear_int8, linear_int4, linear_fp8 or "
                 "grouped_linear_mxfp4, got %s",
                 op);
    return -1;
  }
  PyOS_snprintf(out->name, sizeof out->name, "%s", op);
  arguments->op = out->name;
  out->columns = columns;
  out->group_size = group_size;
  tg_tensor *const views[] = {&out->weight, &out->scale, &out->zero_point, &out->packed};
  for (int i = 0; i < 4; i++) {
    if (objects[i] != Py_None &&
        (tgi_read_tensor(arguments, names[i + 1], objects[i], writes && i == 3, views[i]) < 0 ||
         on_host(out->name, names[i + 1], views[i]) < 0)) {
      return -1;
    }
  }
  const int rank = is_experts(out) ? 4 : 2;
  if (out->weight.ndim != rank) {
    PyErr_Format(PyExc_ValueError, "%s: weight: expected rank %d, got rank %d", out->name, rank,
                 (int)out->weight.ndim);
    return -1;
  }
  return 0;
}

PyObject *tgi_packed_bytes(tgi_type_table *types, PyObject *args, PyObject *named)
{
  tgi_arguments arguments = {.types = types};
  source s = {.columns = 0};
  PyObject *bytes = NULL;
  if (read_source(&arguments, args, named, false, &s) == 0) {
    bytes = PyLong_FromLongLong(packed_bytes(&s));
  }
  Py_XDECREF(arguments.exporters);
  return bytes;
}

PyObject *tgi_pack(tgi_type_table *types, PyObject *args, PyObject *named)
{
  tgi_arguments arguments = {.types = types};
  source s = {.columns = 0};
  int status = read_source(&arguments, args, named, true, &s);
  if (status == 0) {
    tg_error error = {0};
    tg_status packed;
    Py_BEGIN_ALLOW_THREADS packed = pack(&s, &error);
    Py_END_ALLOW_THREADS status = packed == TG_OK ? 0 : tgi_raise_status(packed, error.text);
  }
  Py_XDECREF(arguments.exporters);
  return status < 0 ? NULL : Py_NewRef(Py_None);
}
