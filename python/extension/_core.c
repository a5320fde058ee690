/* tegula._core: calls any op of the library from Python. It reads the public op table
 * (tegula/op_info.h) and names no op: every op of the table can be called. */
#include "array_functions.h"
#include "context_pool.h"
#include "eager/bound_gradient.h"
#include "eager/bound_op.h"
#include "op_call.h"
#include "op_description.h"
#include "status_exception.h"
#include "weight_packing.h"

#include <stdio.h>
#include <string.h>

typedef struct core_state {
  PyObject *array; /* the type tegula.Array */
  tgi_type_table types;
  tgi_torch torch;
} core_state;

/* ---- the call ---- */

static const tg_op_info *find_op(PyObject *op)
{
  if (PyLong_Check(op)) {
    const size_t number = PyLong_AsSize_t(op);
    PyErr_Clear(); /* a negative number is (size_t)-1, which no entry has */
    if (tg_op_at(number)) {
      return tg_op_at(number);
    }
  } else if (PyUnicode_Check(op)) {
    const char *name = PyUnicode_AsUTF8AndSize(op, NULL);
    if (name && tg_op_find(name)) {
      return tg_op_find(name);
    }
    PyErr_Clear();
  }
  PyErr_Format(PyExc_ValueError, "op: expected an entry or name of the op table, got %R", op);
  return NULL;
}

static PyObject *call_op(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames, bool sizing)
{
  if (nargs < 1) {
    PyErr_SetString(PyExc_TypeError, "op: expected an entry or name of the op table, got nothing");
    return NULL;
  }
  tgi_op_call call;
  call.info = find_op(args[0]);
  if (!call.info) {
    return NULL;
  }
  core_state *state = PyModule_GetState(module);
  call.tensors = (tgi_arguments){.types = &state->types, .op = call.info->name};
  call.allocate = NULL;
  call.like = NULL;
  call.sizing = sizing;
  memset(call.args.fields, 0, call.info->args_bytes);
  size_t bytes = 0;
  int status = tgi_read_arguments(&call, args + 1, nargs - 1, kwnames);
  if (status == 0) {
    status = tgi_run_call(&call, &bytes);
  }
  Py_XDECREF(call.tensors.exporters);
  if (status < 0) {
    return NULL;
  }
  return sizing ? PyLong_FromSize_t(bytes) : Py_NewRef(Py_None);
}

static PyObject *run_op(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                        PyObject *kwnames)
{
  return call_op(module, args, nargs, kwnames, false);
}

static PyObject *size_op(PyObject *module, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *kwnames)
{
  return call_op(module, args, nargs, kwnames, true);
}

/* ---- the other functions ---- */

static PyObject *list_ops(PyObject *module, PyObject *unused)
{
  (void)module;
  (void)unused;
  return tgi_describe_ops();
}

static PyObject *use_torch(PyObject *module, PyObject *args)
{
  core_state *state = PyModule_GetState(module);
  return tgi_torch_set(&state->torch, args) < 0 ? NULL : Py_NewRef(Py_None);
}

/* The table entry to bind. NULL with an exception set, also before use_torch was called. */
static const tg_op_info *find_bindable(const core_state *state, PyObject *op)
{
  const tg_op_info *info = find_op(op);
  if (info && !state->torch.tensor) {
    PyErr_Format(PyExc_RuntimeError, "%s: bind: expected use_torch before, got none", info->name);
    return NULL;
  }
  return info;
}

static PyObject *bind(PyObject *module, PyObject *args)
{
  PyObject *op = NULL, *results = NULL, *differentiate = NULL;
  if (!PyArg_ParseTuple(args, "OO!|O:bind", &op, &PyTuple_Type, &results, &differentiate)) {
    return NULL;
  }
  core_state *state = PyModule_GetState(module);
  const tg_op_info *info = find_bindable(state, op);
  return info ? tgi_bind(module, &state->torch, &state->types, info, results, differentiate) : NULL;
}

static PyObject *bind_forward(PyObject *module, PyObject *args)
{
  PyObject *op = NULL, *results = NULL, *kept = NULL;
  Py_ssize_t num_public = 0;
  int keeps_scalars = 0;
  if (!PyArg_ParseTuple(args, "OO!nO!p:bind_forward", &op, &PyTuple_Type, &results, &num_public,
                        &PyTuple_Type, &kept, &keeps_scalars)) {
    return NULL;
  }
  core_state *state = PyModule_GetState(module);
  const tg_op_info *info = find_bindable(state, op);
  return info ? tgi_bind_forward(module, &state->torch, &state->types, info, results, num_public,
                                 kept, keeps_scalars)
              : NULL;
}

static PyObject *bind_backward(PyObject *module, PyObject *args)
{
  PyObject *op = NULL;
  tgi_gradient_plan plan;
  if (!PyArg_ParseTuple(args, "OO!O!O!O!O!:bind_backward", &op, &PyTuple_Type, &plan.tensors,
                        &PyTuple_Type, &plan.likes, &PyTuple_Type, &plan.scalars, &PyTuple_Type,
                        &plan.users, &PyTuple_Type, &plan.places)) {
    return NULL;
  }
  core_state *state = PyModule_GetState(module);
  const tg_op_info *info = find_bindable(state, op);
  return info ? tgi_bind_backward(module, &state->torch, &state->types, info, &plan) : NULL;
}

static PyObject *packed_bytes(PyObject *module, PyObject *args, PyObject *named)
{
  return tgi_packed_bytes(&((core_state *)PyModule_GetState(module))->types, args, named);
}

static PyObject *pack(PyObject *module, PyObject *args, PyObject *named)
{
  return tgi_pack(&((core_state *)PyModule_GetState(module))->types, args, named);
}

static PyObject *check(PyObject *module, PyObject *unused)
{
  (void)module;
  (void)unused;
  tg_error error = {0};
  tg_status status;
  Py_BEGIN_ALLOW_THREADS status = tgi_context_check_all(&error);
  Py_END_ALLOW_THREADS if (status != TG_OK)
  {
    tgi_raise_status(status, error.text);
    return NULL;
  }
  return Py_NewRef(Py_None);
}

static PyObject *device_count(PyObject *module, PyObject *unused)
{
  (void)module;
  (void)unused;
  return PyLong_FromLong(tg_device_count());
}

static PyObject *device_info(PyObject *module, PyObject *index)
{
  (void)module;
  const long number = PyLong_AsLong(index);
  if (number == -1 && PyErr_Occurred()) {
    return NULL;
  }
  tg_device_info info;
  tg_error error = {0};
  const tg_status status = tg_device_get_info((int32_t)number, &info, &error);
  if (status != TG_OK) {
    tgi_raise_status(status, error.text);
    return NULL;
  }
  return Py_BuildValue("{s:s,s:s,s:s,s:i,s:L,s:L,s:O}", "name", info.name, "kernels", info.kernels,
                       "reason", info.reason, "compute_capability", (int)info.compute_capability,
                       "memory_bytes", (long long)info.memory_bytes, "free_bytes",
                       (long long)info.free_bytes, "supported",
                       info.supported ? Py_True : Py_False);
}

static PyObject *load_kernels(PyObject *module, PyObject *index)
{
  (void)module;
  const long number = PyLong_AsLong(index);
  if (number == -1 && PyErr_Occurred()) {
    return NULL;
  }
  int64_t found = 0, loaded = 0;
  tg_error error = {0};
  tg_status status;
  Py_BEGIN_ALLOW_THREADS status =
      tgi_context_load_kernels((int32_t)number, &found, &loaded, &error);
  Py_END_ALLOW_THREADS if (status != TG_OK)
  {
    tgi_raise_status(status, error.text);
    return NULL;
  }
  return Py_BuildValue("LL", (long long)found, (long long)loaded);
}

static PyObject *tune(PyObject *module, PyObject *args)
{
  (void)module;
  int index = 0, begins = 0;
  unsigned long long stream = 0;
  if (!PyArg_ParseTuple(args, "iKp", &index, &stream, &begins)) {
    return NULL;
  }
  int64_t measured = 0;
  tg_error error = {0};
  tg_status status;
  Py_BEGIN_ALLOW_THREADS status =
      tgi_context_tune((int32_t)index, (void *)(uintptr_t)stream, begins != 0, &measured, &error);
  Py_END_ALLOW_THREADS if (status != TG_OK)
  {
    tgi_raise_status(status, error.text);
    return NULL;
  }
  return PyLong_FromLongLong(measured);
}

static PyObject *clear_tuned(PyObject *module, PyObject *nothing)
{
  (void)module;
  (void)nothing;
  int64_t removed = 0;
  tg_error error = {0};
  const tg_status status = tg_tune_clear(&removed, &error);
  if (status != TG_OK) {
    tgi_raise_status(status, error.text);
    return NULL;
  }
  return PyLong_FromLongLong(removed);
}

static PyObject *allow_overlap(PyObject *module, PyObject *allow)
{
  (void)module;
  if (!PyBool_Check(allow)) { /* a promise is not given by whatever is true */
    PyErr_Format(PyExc_TypeError, "allow_overlap: allow: expected a bool, got %R", allow);
    return NULL;
  }
  return PyBool_FromLong(tgi_context_allow_overlap(allow == Py_True));
}

static PyObject *empty(PyObject *module, PyObject *args)
{
  return tgi_array_empty(((core_state *)PyModule_GetState(module))->array, args);
}

static PyObject *array(PyObject *module, PyObject *args)
{
  return tgi_array_from_values(((core_state *)PyModule_GetState(module))->array, args);
}

/* ---- the module ---- */

static int exec_module(PyObject *module)
{
  for (size_t i = 0; i < tg_op_count(); i++) {
    if (tg_op_at(i)->args_bytes > TGI_ARGS_BYTES) {
      PyErr_Format(PyExc_ImportError, "%s: args: expected at most %d bytes, got %zu",
                   tg_op_at(i)->name, TGI_ARGS_BYTES, tg_op_at(i)->args_bytes);
      return -1;
    }
  }
  core_state *state = PyModule_GetState(module);
  state->array = tgi_array_make_type(module);
  if (!state->array || PyModule_AddObjectRef(module, "Array", state->array) < 0) {
    return -1;
  }
  return PyModule_AddStringConstant(module, "version", tg_version());
}

static int traverse_module(PyObject *module, visitproc visit, void *arg)
{
  core_state *state = PyModule_GetState(module);
  Py_VISIT(state ? state->array : NULL);
  const int status = state ? tgi_type_table_visit(&state->types, visit, arg) : 0;
  return state && status == 0 ? tgi_torch_visit(&state->torch, visit, arg) : status;
}

static int clear_module(PyObject *module)
{
  core_state *state = PyModule_GetState(module);
  if (state) {
    Py_CLEAR(state->array);
    tgi_type_table_clear(&state->types);
    tgi_torch_clear(&state->torch);
  }
  return 0;
}

static void free_module(void *module)
{
  clear_module(module);
}

#define FUNCTION(name, function, flags, doc)                                                       \
  {                                                                                                \
    name, (PyCFunction)(void (*)(void))(function), flags, doc                                      \
  }

static PyMethodDef methods[] = {
    FUNCTION(
        "run", run_op, METH_FASTCALL | METH_KEYWORDS,
        "run(op, *args, **args)\n--\n\nRuns an entry of the op table, given by number or name. "
        "Arguments come in the order of its slots or by name; None means absent. workspace is "
        "an array of bytes in 64-byte-aligned memory, or a function of a number of bytes that "
        "returns one; without it, the call makes one and, on a GPU, waits for the op."),
    FUNCTION("workspace", size_op, METH_FASTCALL | METH_KEYWORDS,
             "workspace(op, *args, **args)\n--\n\nBytes of workspace that run needs with these "
             "arguments."),
    FUNCTION(
        "use_torch", use_torch, METH_VARARGS,
        "use_torch(...)\n--\n\nSets the functions of PyTorch that bound ops call; for the package "
        "itself."),
    FUNCTION(
        "bind", bind, METH_VARARGS,
        "bind(op, results[, differentiate])\n--\n\nA table entry as a function of plain tensors of "
        "PyTorch: (out, *inputs, *scalars) to the named results, allocated like the first input. "
        "Returns False for a call that is not plain. If a gradient is needed, returns the result "
        "of differentiate, or True without one."),
    FUNCTION(
        "bind_forward", bind_forward, METH_VARARGS,
        "bind_forward(op, results, num_public, kept, keeps_scalars)\n--\n\nA table entry as the "
        "forward of the autograd.Function that a bound op calls."),
    FUNCTION("bind_backward", bind_backward, METH_VARARGS,
             "bind_backward(op, tensors, likes, scalars, users, places)\n--\n\nA table entry as a "
             "backward: (needs, scalars, saved, gradients), all tuples, to the gradient of each "
             "argument. Returns False if a tensor is not plain."),
    FUNCTION("packed_bytes", packed_bytes, METH_VARARGS | METH_KEYWORDS,
             "packed_bytes(op, weight, scale, zero_point=None, packed=None, columns=0, "
             "group_size=0)\n--\n\nBytes of a weight packed for linear_int8, linear_int4, "
             "linear_fp8 or grouped_linear_mxfp4, whose weight are the blocks and scale the "
             "scales. columns and group_size are for linear_int4."),
    FUNCTION(
        "pack", pack, METH_VARARGS | METH_KEYWORDS,
        "pack(op, weight, scale, zero_point=None, packed=None, columns=0, group_size=0)\n--\n\n"
        "Packs a weight into `packed`, both in the CPU's memory."),
    FUNCTION(
        "empty", empty, METH_VARARGS,
        "empty(shape, dtype, gpu=-1, zero=False)\n--\n\nAn Array in host memory or on a GPU, not "
        "initialised or of zeros."),
    FUNCTION("array", array, METH_VARARGS,
             "array(values, shape, dtype)\n--\n\nAn Array of a list of numbers, flat."),
    FUNCTION("ops", list_ops, METH_NOARGS, "ops()\n--\n\nThe op table: a dict for each entry."),
    FUNCTION("check", check, METH_NOARGS,
             "check()\n--\n\nWaits for the GPUs' work and raises the first data error that a "
             "kernel recorded, such as an id out of range."),
    FUNCTION("device_count", device_count, METH_NOARGS,
             "device_count()\n--\n\nGPUs that CUDA shows; 0 in a build without CUDA."),
    FUNCTION("device_info", device_info, METH_O, "device_info(index)\n--\n\nDescribes a GPU."),
    FUNCTION("load_kernels", load_kernels, METH_O,
             "load_kernels(index)\n--\n\nLoads the code of every kernel for a GPU. How many there "
             "are, and how many of them had not been loaded before."),
    FUNCTION("tune", tune, METH_VARARGS,
             "tune(index, stream, begins)\n--\n\nFrom here on, or no longer, products on the "
             "stream of a GPU are measured, and outputs undefined. How many were."),
    FUNCTION("clear_tuned", clear_tuned, METH_NOARGS,
             "clear_tuned()\n--\n\nDeletes the tables of measured products. How many there "
             "were."),
    FUNCTION(
        "allow_overlap", allow_overlap, METH_O,
        "allow_overlap(allow)\n--\n\nWhether kernels of later calls may begin while the kernel "
        "ahead of them runs, as tg_context_allow_overlap says. What held before."),
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[4] = {{Py_mod_exec, (void *)(uintptr_t)exec_module}, {0, NULL}};

static PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "tegula._core",
    .m_doc = "The ops of libtegula, by its op table.",
    .m_size = sizeof(core_state),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = traverse_module,
    .m_clear = clear_module,
    .m_free = free_module,
};

/* Slots that let interpreters with a lock of their own load the module. The limited API of 3.10
 * does not define their numbers, and interpreters before 3.12 refuse them. */
static void add_interpreter_slots(void)
{
  enum { multiple_interpreters = 3, per_interpreter_gil = 2 };
  int major = 0, minor = 0;
  if (sscanf(Py_GetVersion(), "%d.%d", &major, &minor) == 2 && (major > 3 || minor >= 12)) {
    slots[1] = (PyModuleDef_Slot){multiple_interpreters, (void *)(uintptr_t)per_interpreter_gil};
    slots[2] = (PyModuleDef_Slot){0, NULL};
  }
}

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
  add_interpreter_slots();
  return PyModuleDef_Init(&definition);
}
