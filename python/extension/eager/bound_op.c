#include "bound_op.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RESULTS = 8, MAX_KEPT = 12 };
static const char kBound[] = "tegula.bound_op";

/* Set while autograd's apply runs. The forward reads its parsed arguments from here: apply passes
 * only tensors on, and calls the forward in the same thread. */
static _Thread_local tgi_bound_call *under_way;

typedef struct bound_op {
  tgi_bound_entry entry;
  PyObject *differentiate;     /* apply, called if a gradient is needed; or NULL */
  size_t results[MAX_RESULTS]; /* slots */
  size_t num_results;
  int kept[MAX_KEPT]; /* forward: tensors saved for the backward, numbered as in bind_forward */
  Py_ssize_t num_kept;
  Py_ssize_t num_public; /* forward: how many results the caller gets */
  bool keeps_scalars;    /* forward: the backward reads scalars */
  PyObject *scalars;     /* forward: those of the last call, reused if equal */
} bound_op;

/* ---- results ---- */

/* All results, as a tuple if there are several; NULL with an exception set on failure. */
static PyObject *make_results(const bound_op *op, tgi_bound_call *bound, PyObject *like,
                              PyObject *out)
{
  if (op->num_results == 1) {
    return out != Py_None ? Py_NewRef(out) : tgi_bound_make(bound, op->results[0], 0, like);
  }
  PyObject *results = PyTuple_New((Py_ssize_t)op->num_results);
  for (size_t i = 0; results && i < op->num_results; i++) {
    PyObject *made =
        i == 0 && out != Py_None ? Py_NewRef(out) : tgi_bound_make(bound, op->results[i], 0, like);
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

static PyObject *tuple_of(PyObject *const *items, Py_ssize_t count)
{
  PyObject *tuple = PyTuple_New(count);
  for (Py_ssize_t i = 0; tuple && i < count; i++) {
    if (PyTuple_SetItem(tuple, i, Py_NewRef(items[i])) < 0) {
      Py_CLEAR(tuple);
    }
  }
  return tuple;
}

/* After a failed call: clears the exception and returns TGI_NOT_PLAIN if a transform is active. */
static int refused_for_transform(const tgi_torch *torch)
{
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const int transformed = tgi_torch_is_transformed(torch);
  if (transformed != 0) {
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return transformed < 0 ? -1 : TGI_NOT_PLAIN;
  }
  PyErr_Restore(type, value, traceback);
  return -1;
}

/* Calls apply. It refuses a call under a transform of torch.func before the forward begins, so that
 * is looked up only after a failure: the look-up would cost every call more. */
static int differentiate(const bound_op *op, tgi_bound_call *bound, PyObject **results)
{
  PyObject *tuple = tuple_of(bound->args, (Py_ssize_t)op->entry.num_inputs);
  if (!tuple) {
    return -1;
  }
  tgi_bound_call *outer = under_way;
  under_way = bound;
  *results = PyObject_CallObject(op->differentiate, tuple);
  under_way = outer;
  Py_DECREF(tuple);
  if (*results) {
    return TGI_NEEDS_GRADIENT;
  }
  return bound->begun ? -1 : refused_for_transform(op->entry.torch);
}

/* Whether the inputs have dtypes that the op takes: rows the first one's, others that or f32. The
 * general path converts. */
static bool dtypes_fit(const tgi_bound_call *bound)
{
  const tg_op_info *info = bound->entry->info;
  tg_dtype first = TG_DTYPE_NONE;
  for (size_t i = 0; i < bound->entry->num_inputs; i++) {
    const tg_tensor *view =
        (const tg_tensor *)(const void *)(bound->call.args.fields + info->slots[i].offset);
    first = first == TG_DTYPE_NONE ? view->dtype : first;
    if (view->dtype != first && view->dtype != TG_DTYPE_NONE &&
        (info->slots[i].ndim == 2 || view->dtype != TG_F32)) {
      return false;
    }
  }
  return true;
}

/* Returns what it found; *results holds a reference if the op has run. */
static int run_bound(const bound_op *op, tgi_bound_call *bound, PyObject *const *args,
                     PyObject **results)
{
  const tgi_torch *torch = op->entry.torch;
  const int eager = tgi_torch_is_eager(torch);
  if (eager <= 0) {
    return eager < 0 ? -1 : TGI_NOT_PLAIN;
  }
  PyObject *out = args[0];
  int verdict = tgi_bound_read_inputs(bound, args + 1, true);
  if (verdict > TGI_NOT_PLAIN && !dtypes_fit(bound)) {
    return TGI_NOT_PLAIN;
  }
  if (verdict > TGI_NOT_PLAIN && out != Py_None) {
    const int found = tgi_bound_read_output(bound, op->results[0], out, verdict == TGI_PLAIN);
    verdict = found == TGI_PLAIN ? verdict : found;
  }
  if (verdict == TGI_NEEDS_GRADIENT) {
    const int grad = tgi_take_truth(PyObject_CallNoArgs(torch->grad_enabled));
    /* With a gradient, the general path refuses `out`. */
    verdict = grad < 0 ? -1 : !grad ? TGI_PLAIN : out == Py_None ? verdict : TGI_NOT_PLAIN;
  }
  if (verdict == TGI_NOT_PLAIN || verdict < 0) {
    return verdict;
  }
  if (tgi_bound_read_scalars(bound, args + 1 + op->entry.num_inputs) < 0) {
    return -1;
  }
  if (verdict == TGI_NEEDS_GRADIENT) {
    bound->args = args + 1;
    return op->differentiate ? differentiate(op, bound, results) : verdict;
  }
  *results = make_results(op, bound, args[1], out);
  if (!*results || tgi_bound_run(bound, args[1]) < 0 ||
      (out != Py_None && note_change(torch, out) < 0)) {
    Py_CLEAR(*results);
    return -1;
  }
  return TGI_PLAIN;
}

static PyObject *call_bound(PyObject *capsule, PyObject *const *args, Py_ssize_t nargs)
{
  const bound_op *op = PyCapsule_GetPointer(capsule, kBound);
  if (!op) {
    return NULL;
  }
  const Py_ssize_t expected = (Py_ssize_t)(1 + op->entry.num_inputs + op->entry.num_scalars);
  if (nargs != expected) {
    PyErr_Format(PyExc_TypeError, "%s: args: expected %zd arguments, got %zd", op->entry.info->name,
                 expected, nargs);
    return NULL;
  }
  tgi_bound_call bound;
  tgi_bound_begin(&bound, &op->entry);
  PyObject *results = NULL;
  const int verdict = run_bound(op, &bound, args, &results);
  tgi_bound_end(&bound);
  if (verdict < 0) {
    return NULL;
  }
  return results ? results : Py_NewRef(verdict == TGI_NEEDS_GRADIENT ? Py_True : Py_False);
}

/* ---- the forward of an autograd.Function ---- */

static PyObject *pick_kept(const bound_op *op, PyObject *const *args, PyObject *results)
{
  PyObject *picked = PyTuple_New(op->num_kept);
  for (Py_ssize_t i = 0; picked && i < op->num_kept; i++) {
    const int place = op->kept[i];
    PyObject *item = place >= 0             ? args[place]
                     : op->num_results == 1 ? results
                                            : PyTuple_GetItem(results, -1 - place);
    if (!item || PyTuple_SetItem(picked, i, Py_NewRef(item)) < 0) {
      Py_CLEAR(picked);
    }
  }
  return picked;
}

static bool holds(PyObject *tuple, PyObject *const *items)
{
  for (Py_ssize_t i = 0; tuple && i < PyTuple_Size(tuple); i++) {
    if (PyTuple_GetItem(tuple, i) != items[i]) {
      return false;
    }
  }
  return tuple;
}

/* The scalars as a tuple; NULL with an exception set on failure. */
static PyObject *scalars_of(bound_op *op, PyObject *const *scalars)
{
  if (!holds(op->scalars, scalars)) {
    PyObject *given_up = op->scalars;
    op->scalars = tuple_of(scalars, (Py_ssize_t)op->entry.num_scalars);
    Py_XDECREF(given_up);
  }
  return Py_XNewRef(op->scalars);
}

/* Saves tensors as ctx.save_for_backward does, and the scalars if the backward reads any. */
static int keep(bound_op *op, PyObject *ctx, PyObject *const *args, PyObject *results)
{
  PyObject *tensors = pick_kept(op, args, results);
  int status = tensors ? PyObject_SetAttr(ctx, op->entry.torch->to_save, tensors) : -1;
  Py_XDECREF(tensors);
  if (status == 0 && op->keeps_scalars) {
    PyObject *scalars = scalars_of(op, args + op->entry.num_inputs);
    status = scalars ? PyObject_SetAttr(ctx, op->entry.torch->scalars, scalars) : -1;
    Py_XDECREF(scalars);
  }
  return status;
}

static PyObject *call_forward(PyObject *capsule, PyObject *const *args, Py_ssize_t nargs)
{
  bound_op *op = PyCapsule_GetPointer(capsule, kBound);
  tgi_bound_call *bound = under_way;
  if (!op || !bound || bound->entry->info != op->entry.info ||
      nargs != (Py_ssize_t)op->entry.num_inputs + 1 ||
      memcmp(args + 1, bound->args, op->entry.num_inputs * sizeof *args) != 0) {
    PyErr_Format(PyExc_TypeError, "forward: args: expected the call of the bound op, got another");
    return NULL;
  }
  bound->begun = true;
  PyObject *results = make_results(op, bound, bound->args[0], Py_None);
  if (results &&
      (tgi_bound_run(bound, bound->args[0]) < 0 || keep(op, args[0], bound->args, results) < 0)) {
    Py_CLEAR(results);
  }
  if (!results || op->num_results == 1) {
    return results;
  }
  PyObject *given = op->num_public == 1 ? Py_XNewRef(PyTuple_GetItem(results, 0))
                                        : PyTuple_GetSlice(results, 0, op->num_public);
  Py_DECREF(results);
  return given;
}

/* ---- binding ---- */

static void free_bound(PyObject *capsule)
{
  bound_op *op = PyCapsule_GetPointer(capsule, kBound);
  tgi_bound_entry_clear(&op->entry);
  Py_XDECREF(op->differentiate);
  Py_XDECREF(op->scalars);
  free(op);
}

static int find_results(bound_op *op, PyObject *names)
{
  const Py_ssize_t count = PyTuple_Size(names);
  if (count < 1 || count > MAX_RESULTS) {
    PyErr_Format(PyExc_ValueError, "%s: results: expected a tuple of 1 to %d names, got %R",
                 op->entry.info->name, (int)MAX_RESULTS, names);
    return -1;
  }
  for (Py_ssize_t r = 0; r < count; r++) {
    size_t i = 0;
    while (i < op->entry.info->num_slots &&
           (op->entry.info->slots[i].role != TG_ROLE_OUT ||
            op->entry.info->slots[i].kind != TG_KIND_TENSOR ||
            PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, r),
                                             op->entry.info->slots[i].name))) {
      i++;
    }
    if (i == op->entry.info->num_slots) {
      PyErr_Format(PyExc_ValueError, "%s: results: expected names of outputs, got %R",
                   op->entry.info->name, names);
      return -1;
    }
    op->results[op->num_results++] = i;
  }
  return 0;
}

/* A bound_op and the capsule that owns it; NULL with an exception set on failure. */
static bound_op *new_bound(PyObject *module, tgi_torch *torch, tgi_type_table *types,
                           const tg_op_info *info, PyObject *results, PyObject **capsule)
{
  bound_op *op = calloc(1, sizeof *op);
  *capsule = op ? PyCapsule_New(op, kBound, free_bound) : PyErr_NoMemory();
  if (!*capsule) {
    free(op);
    return NULL;
  }
  if (tgi_bound_entry_set(&op->entry, module, torch, types, info) < 0 ||
      find_results(op, results) < 0) {
    Py_CLEAR(*capsule);
    return NULL;
  }
  return op;
}

PyObject *tgi_bind(PyObject *module, tgi_torch *torch, tgi_type_table *types,
                   const tg_op_info *info, PyObject *results, PyObject *differentiate)
{
  static PyMethodDef method = {"bound_op", (PyCFunction)(void (*)(void))call_bound, METH_FASTCALL,
                               NULL};
  PyObject *capsule;
  bound_op *op = new_bound(module, torch, types, info, results, &capsule);
  if (!op) {
    return NULL;
  }
  op->differentiate = Py_XNewRef(differentiate);
  PyObject *function = PyCFunction_NewEx(&method, capsule, NULL);
  Py_DECREF(capsule);
  return function;
}

/* False if `kept` holds anything but numbers of inputs, or negative numbers of results. */
static bool read_kept(bound_op *op, PyObject *kept)
{
  op->num_kept = PyTuple_Size(kept);
  for (Py_ssize_t i = 0; i < op->num_kept && i < MAX_KEPT; i++) {
    const long place = PyLong_AsLong(PyTuple_GetItem(kept, i));
    if (PyErr_Occurred() || place < -(long)op->num_results || place >= (long)op->entry.num_inputs) {
      PyErr_Clear();
      return false;
    }
    op->kept[i] = (int)place;
  }
  return op->num_kept <= MAX_KEPT;
}

PyObject *tgi_bind_forward(PyObject *module, tgi_torch *torch, tgi_type_table *types,
                           const tg_op_info *info, PyObject *results, Py_ssize_t num_public,
                           PyObject *kept, bool keeps_scalars)
{
  static PyMethodDef method = {"bound_forward", (PyCFunction)(void (*)(void))call_forward,
                               METH_FASTCALL, NULL};
  PyObject *capsule;
  bound_op *op = new_bound(module, torch, types, info, results, &capsule);
  if (!op) {
    return NULL;
  }
  op->num_public = num_public;
  op->keeps_scalars = keeps_scalars;
  PyObject *function = NULL;
  if (num_public >= 1 && num_public <= PyTuple_Size(results) && read_kept(op, kept)) {
    function = PyCFunction_NewEx(&method, capsule, NULL);
  } else {
    PyErr_Format(PyExc_ValueError,
                 "%s: kept: expected 1 to %zd public results and numbers of tensors, got %zd, %R",
                 info->name, PyTuple_Size(results), num_public, kept);
  }
  Py_DECREF(capsule);
  return function;
}
