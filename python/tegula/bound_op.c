#include "bound_op.h"

#include "op_description.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_RESULTS = 8, NOT_PLAIN = 0, NEEDS_GRADIENT = 1, PLAIN = 2 };

typedef struct bound_op {
  PyObject *module;
  tgi_torch *torch;
  tgi_type_table *types;
  const tg_op_info *info;
  size_t results[MAX_RESULTS]; /* slots */
  size_t num_results;
  Py_ssize_t num_arguments;
} bound_op;

/* ---- PyTorch ---- */

static PyObject **members(tgi_torch *torch)
{
  return (PyObject **)(void *)torch;
}

enum { NUM_MEMBERS = sizeof(tgi_torch) / sizeof(PyObject *), NUM_GIVEN = NUM_MEMBERS - 2 };

int tgi_torch_set(tgi_torch *torch, PyObject *args)
{
  if (PyTuple_Size(args) != NUM_GIVEN) {
    PyErr_Format(PyExc_TypeError, "use_torch: expected %d arguments, got %zd", (int)NUM_GIVEN,
                 PyTuple_Size(args));
    return -1;
  }
  tgi_torch_clear(torch);
  for (int i = 0; i < NUM_GIVEN; i++) {
    members(torch)[i] = Py_NewRef(PyTuple_GetItem(args, i));
  }
  torch->requires_grad = PyUnicode_InternFromString("requires_grad");
  torch->current_level = PyUnicode_InternFromString("_current_level");
  return torch->requires_grad && torch->current_level ? 0 : -1;
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

/* The value of an object that is given up; -1 with an exception set on failure. */
static long take_long(PyObject *object)
{
  const long value = object ? PyLong_AsLong(object) : -1;
  Py_XDECREF(object);
  return value;
}

static int take_truth(PyObject *object)
{
  const int truth = object ? PyObject_IsTrue(object) : -1;
  Py_XDECREF(object);
  return truth;
}

/* Eager mode without transforms, modes or forward derivatives? */
static int is_eager(const tgi_torch *torch)
{
  if (!torch->tensor) {
    return 0; /* the interpreter is ending */
  }
  const int transformed = take_truth(PyObject_CallNoArgs(torch->functorch_active));
  if (transformed != 0) {
    return transformed < 0 ? -1 : 0;
  }
  const long modes = take_long(PyObject_CallNoArgs(torch->num_modes));
  if (modes != 0) {
    return modes == -1 && PyErr_Occurred() ? -1 : 0;
  }
  const long level = take_long(PyObject_GetAttr(torch->forward_ad, torch->current_level));
  return level == -1 && PyErr_Occurred() ? -1 : level < 0;
}

/* ---- tensors ---- */

static tg_tensor *field_of(tgi_op_call *call, size_t slot)
{
  return (tg_tensor *)(void *)(call->args.fields + call->info->slots[slot].offset);
}

/* [..., cols] as [rows, cols]. */
static bool flatten(const tg_slot_info *slot, tg_tensor *view)
{
  for (int i = 0; i < view->ndim; i++) {
    if (view->stride[i] != 0) {
      return view->ndim == slot->ndim && slot->role != TG_ROLE_IN; /* strided */
    }
  }
  if (slot->ndim != 2 || view->ndim == 2) {
    return true;
  }
  if (view->ndim == 0) {
    return false;
  }
  int64_t rows = 1;
  for (int i = 0; i < view->ndim - 1; i++) {
    rows *= view->shape[i];
  }
  view->shape[1] = view->shape[view->ndim - 1];
  view->shape[0] = rows;
  for (int i = 2; i < view->ndim; i++) {
    view->shape[i] = 0;
  }
  view->ndim = 2;
  return true;
}

/* Reads a tensor that PyTorch gives. *grad: whether gradients are on; then NEEDS_GRADIENT is an
 * answer. -1 with an exception set on failure. */
static int read_plain(const bound_op *op, tgi_op_call *call, size_t index, PyObject *object,
                      bool grad)
{
  const tgi_torch *torch = op->torch;
  const tg_slot_info *slot = &op->info->slots[index];
  PyObject *type = (PyObject *)Py_TYPE(object);
  if (type != torch->tensor && type != torch->parameter) {
    return NOT_PLAIN;
  }
  tg_tensor *view = field_of(call, index);
  if (tgi_read_tensor(&call->tensors, slot->name, object, slot->role != TG_ROLE_IN, view) < 0) {
    PyErr_Clear(); /* the general way says what is wrong, or finds a way */
    return NOT_PLAIN;
  }
  /* Negated views are imaginary parts of conjugates, and no complex numbers are made of bf16. */
  if (view->dtype != TG_BF16) {
    const int negated = take_truth(PyObject_CallFunctionObjArgs(torch->is_neg, object, NULL));
    if (negated != 0) {
      return negated < 0 ? -1 : NOT_PLAIN;
    }
  }
  if (!grad) {
    return PLAIN;
  }
  const int required = take_truth(PyObject_GetAttr(object, torch->requires_grad));
  return required < 0 ? -1 : required ? NEEDS_GRADIENT : PLAIN;
}

/* The leading axes of all inputs by rows must be the first's, or rows would be paired by accident.
 */
typedef struct leading_axes {
  int64_t shape[TG_MAX_NDIM];
  int32_t ndim;
} leading_axes;

static bool same_leading(const leading_axes *first, const tg_tensor *view)
{
  return view->ndim == first->ndim &&
         memcmp(view->shape, first->shape, (size_t)(first->ndim - 1) * sizeof *view->shape) == 0;
}

static int read_inputs(const bound_op *op, tgi_op_call *call, PyObject *const *values, bool grad,
                       leading_axes *first, size_t *used)
{
  int verdict = PLAIN;
  for (size_t i = 0; i < op->info->num_slots && op->info->slots[i].role == TG_ROLE_IN; i++) {
    const tg_slot_info *slot = &op->info->slots[i];
    PyObject *value = values[(*used)++];
    if (value == Py_None) {
      if (i == 0) {
        return NOT_PLAIN;
      }
      continue;
    }
    const int found = read_plain(op, call, i, value, grad);
    if (found < 0 || found == NOT_PLAIN) {
      return found;
    }
    tg_tensor *view = field_of(call, i);
    if (i == 0) {
      first->ndim = view->ndim;
      memcpy(first->shape, view->shape, sizeof first->shape);
    } else if (slot->ndim == 2 && !same_leading(first, view)) {
      return NOT_PLAIN;
    }
    if (first->ndim == 0 || !flatten(slot, view)) {
      return NOT_PLAIN;
    }
    verdict = found == NEEDS_GRADIENT ? NEEDS_GRADIENT : verdict;
  }
  return verdict;
}

/* ---- results ---- */

static int write_into(const bound_op *op, tgi_op_call *call, PyObject *out, bool grad,
                      const leading_axes *first)
{
  const size_t index = op->results[0];
  const int found = read_plain(op, call, index, out, grad);
  if (found != PLAIN) {
    return found < 0 ? -1 : NOT_PLAIN; /* the general way refuses one that requires its gradient */
  }
  tg_tensor *view = field_of(call, index);
  return same_leading(first, view) && flatten(&op->info->slots[index], view) ? PLAIN : NOT_PLAIN;
}

static PyObject *make_result(const bound_op *op, tgi_op_call *call, size_t index, PyObject *like)
{
  const tgi_torch *torch = op->torch;
  PyObject *made;
  if (op->info->slots[index].ndim == 2) {
    made = PyObject_CallFunctionObjArgs(torch->empty_like, like, NULL);
  } else {
    made =
        PyObject_CallFunction(torch->statistic, "OL", like, (long long)field_of(call, 0)->shape[0]);
  }
  tg_tensor *view = field_of(call, index);
  if (made && (tgi_read_tensor(&call->tensors, op->info->slots[index].name, made, true, view) < 0 ||
               !flatten(&op->info->slots[index], view))) {
    Py_CLEAR(made);
  }
  return made;
}

/* All results, as a tuple unless there is one; NULL with an exception set on failure. */
static PyObject *make_results(const bound_op *op, tgi_op_call *call, PyObject *like, PyObject *out)
{
  if (op->num_results == 1) {
    return out != Py_None ? Py_NewRef(out) : make_result(op, call, op->results[0], like);
  }
  PyObject *results = PyTuple_New((Py_ssize_t)op->num_results);
  for (size_t i = 0; results && i < op->num_results; i++) {
    PyObject *made =
        i == 0 && out != Py_None ? Py_NewRef(out) : make_result(op, call, op->results[i], like);
    if (!made || PyTuple_SetItem(results, (Py_ssize_t)i, made) < 0) {
      Py_CLEAR(results);
    }
  }
  return results;
}

static int note_change(const tgi_torch *torch, PyObject *out)
{
  PyObject *list = PyTuple_Pack(1, out);
  PyObject *done = list ? PyObject_CallFunctionObjArgs(torch->increment_version, list, NULL) : NULL;
  Py_XDECREF(list);
  Py_XDECREF(done);
  return done ? 0 : -1;
}

/* ---- the call ---- */

static int read_scalars(const bound_op *op, tgi_op_call *call, PyObject *const *values, size_t used)
{
  for (size_t i = 0; i < op->info->num_slots; i++) {
    const tg_slot_info *slot = &op->info->slots[i];
    const bool scalar = slot->role == 0 && slot->kind != TG_KIND_WORKSPACE && !tgi_is_implied(slot);
    if (scalar && tgi_read_slot(call, i, values[used++]) < 0) {
      return -1;
    }
  }
  return 0;
}

/* A verdict; where it is PLAIN, the op has run and *results holds a reference. */
static int run_bound(const bound_op *op, tgi_op_call *call, PyObject *const *args,
                     PyObject **results)
{
  const int eager = is_eager(op->torch);
  const int grad = eager > 0 ? take_truth(PyObject_CallNoArgs(op->torch->grad_enabled)) : 0;
  if (eager <= 0 || grad < 0) {
    return eager < 0 || grad < 0 ? -1 : NOT_PLAIN;
  }
  PyObject *out = args[0];
  leading_axes first = {.ndim = 0};
  size_t used = 1;
  int verdict = read_inputs(op, call, args, grad, &first, &used);
  if (verdict > NOT_PLAIN && out != Py_None) {
    verdict = verdict == PLAIN ? write_into(op, call, out, grad, &first) : NOT_PLAIN;
  }
  if (verdict != PLAIN) {
    return verdict;
  }
  size_t bytes = 0;
  call->allocate = op->torch->allocate;
  call->like = args[1];
  if (read_scalars(op, call, args, used) < 0) {
    return -1;
  }
  *results = make_results(op, call, args[1], out);
  if (!*results || tgi_run_call(call, &bytes) < 0 ||
      (out != Py_None && note_change(op->torch, out) < 0)) {
    Py_CLEAR(*results);
    return -1;
  }
  return PLAIN;
}

static PyObject *call_bound(PyObject *capsule, PyObject *const *args, Py_ssize_t nargs)
{
  const bound_op *op = PyCapsule_GetPointer(capsule, "tegula.bound_op");
  if (!op) {
    return NULL;
  }
  if (nargs != op->num_arguments) {
    PyErr_Format(PyExc_TypeError, "%s: args: expected %zd arguments, got %zd", op->info->name,
                 op->num_arguments, nargs);
    return NULL;
  }
  tgi_op_call call;
  call.info = op->info;
  call.tensors = (tgi_arguments){.types = op->types, .op = op->info->name};
  call.allocate = NULL;
  call.like = NULL;
  call.sizing = false;
  memset(call.args.fields, 0, op->info->args_bytes);
  PyObject *results = NULL;
  const int verdict = run_bound(op, &call, args, &results);
  Py_XDECREF(call.tensors.exporters);
  if (verdict < 0) {
    return NULL;
  }
  return verdict == PLAIN ? results : Py_NewRef(verdict == NEEDS_GRADIENT ? Py_True : Py_False);
}

/* ---- binding ---- */

static void free_bound(PyObject *capsule)
{
  bound_op *op = PyCapsule_GetPointer(capsule, "tegula.bound_op");
  Py_XDECREF(op->module);
  free(op);
}

static int find_results(bound_op *op, PyObject *names)
{
  const Py_ssize_t count = PyTuple_Size(names);
  if (count < 1 || count > MAX_RESULTS) {
    PyErr_Format(PyExc_ValueError, "%s: results: expected a tuple of 1 to %d names, got %R",
                 op->info->name, (int)MAX_RESULTS, names);
    return -1;
  }
  for (Py_ssize_t r = 0; r < count; r++) {
    size_t i = 0;
    while (i < op->info->num_slots &&
           (op->info->slots[i].role != TG_ROLE_OUT || op->info->slots[i].kind != TG_KIND_TENSOR ||
            PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, r), op->info->slots[i].name))) {
      i++;
    }
    if (i == op->info->num_slots) {
      PyErr_Format(PyExc_ValueError, "%s: results: expected names of outputs, got %R",
                   op->info->name, names);
      return -1;
    }
    op->results[op->num_results++] = i;
  }
  return 0;
}

PyObject *tgi_bind(PyObject *module, tgi_torch *torch, tgi_type_table *types,
                   const tg_op_info *info, PyObject *results)
{
  static PyMethodDef method = {"bound_op", (PyCFunction)(void (*)(void))call_bound, METH_FASTCALL,
                               NULL};
  bound_op *op = calloc(1, sizeof *op);
  if (!op) {
    return PyErr_NoMemory();
  }
  PyObject *capsule = PyCapsule_New(op, "tegula.bound_op", free_bound);
  if (!capsule) {
    free(op);
    return NULL;
  }
  *op = (bound_op){.module = Py_NewRef(module), .torch = torch, .types = types, .info = info};
  op->num_arguments = 1; /* out */
  for (size_t i = 0; i < info->num_slots; i++) {
    const tg_slot_info *slot = &info->slots[i];
    op->num_arguments +=
        slot->role == TG_ROLE_IN ||
        (slot->role == 0 && slot->kind != TG_KIND_WORKSPACE && !tgi_is_implied(slot));
  }
  PyObject *function = NULL;
  if (find_results(op, results) == 0) {
    function = PyCFunction_NewEx(&method, capsule, NULL);
  }
  Py_DECREF(capsule);
  return function;
}
