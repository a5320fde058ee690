#include "bound_gradient.h"

#include <stdlib.h>

enum { MAX_TENSORS = 12, MAX_OUTS = 4, MAX_SCALARS = 8 };

typedef struct bound_gradient {
  tgi_bound_entry entry;
  tgi_gradient_plan plan;
} bound_gradient;

typedef struct gradient_call {
  PyObject *needs, *scalars, *saved, *gradients;
} gradient_call;

/* Borrowed: item `number` of `first` from 0 upwards, of `second` from -1 downwards, or None. NULL
 * with an exception set on failure. */
static PyObject *pick(PyObject *number, PyObject *first, PyObject *second)
{
  if (!number || number == Py_None) {
    return number;
  }
  const long place = PyLong_AsLong(number);
  if (place == -1 && PyErr_Occurred()) {
    return NULL;
  }
  return place >= 0 ? PyTuple_GetItem(first, place) : PyTuple_GetItem(second, -1 - place);
}

static int pick_tensors(const bound_gradient *op, const gradient_call *given, PyObject **tensors)
{
  for (Py_ssize_t i = 0; i < PyTuple_Size(op->plan.tensors); i++) {
    tensors[i] = pick(PyTuple_GetItem(op->plan.tensors, i), given->saved, given->gradients);
    if (!tensors[i]) {
      return -1;
    }
  }
  return 0;
}

static int is_asked(PyObject *users, PyObject *needs)
{
  for (Py_ssize_t i = 0; i < PyTuple_Size(users); i++) {
    PyObject *need = pick(PyTuple_GetItem(users, i), needs, needs);
    const int truth = need ? PyObject_IsTrue(need) : -1;
    if (truth != 0) {
      return truth;
    }
  }
  return 0;
}

/* The outputs that are needed or not optional; None for the others. */
static PyObject *make_outs(const bound_gradient *op, tgi_bound_call *bound,
                           const gradient_call *given, PyObject *const *tensors)
{
  const Py_ssize_t count = PyTuple_Size(op->plan.users);
  PyObject *outs = PyTuple_New(count);
  for (Py_ssize_t i = 0; outs && i < count; i++) {
    const size_t slot = op->entry.num_inputs + (size_t)i;
    const size_t like = PyLong_AsSize_t(PyTuple_GetItem(op->plan.likes, i));
    const int asked = is_asked(PyTuple_GetItem(op->plan.users, i), given->needs);
    PyObject *made = NULL;
    if (asked < 0) {
      Py_CLEAR(outs);
      break;
    }
    if (tensors[like] == Py_None || (!asked && op->entry.info->slots[slot].optional)) {
      made = Py_NewRef(Py_None);
    } else if (op->entry.info->slots[slot].role == TG_ROLE_ACC) {
      made = tgi_bound_zeros(bound, slot, tensors[like]);
    } else {
      made = tgi_bound_make(bound, slot, like, tensors[like]);
    }
    if (!made || PyTuple_SetItem(outs, i, made) < 0) {
      Py_CLEAR(outs);
    }
  }
  return outs;
}

static int read_scalars(const bound_gradient *op, tgi_bound_call *bound, const gradient_call *given)
{
  PyObject *values[MAX_SCALARS] = {0};
  const Py_ssize_t count = PyTuple_Size(op->plan.scalars);
  int status = 0;
  for (Py_ssize_t i = 0; i < count && status == 0; i++) {
    PyObject *source = PyTuple_GetItem(op->plan.scalars, i);
    values[i] = PyCallable_Check(source) ? PyObject_CallNoArgs(source)
                                         : Py_XNewRef(pick(source, given->scalars, given->scalars));
    status = values[i] ? 0 : -1;
  }
  status = status == 0 ? tgi_bound_read_scalars(bound, values) : status;
  for (Py_ssize_t i = 0; i < count; i++) {
    Py_XDECREF(values[i]);
  }
  return status;
}

static PyObject *place_gradients(const bound_gradient *op, const gradient_call *given,
                                 PyObject *outs)
{
  const Py_ssize_t count = PyTuple_Size(op->plan.places);
  PyObject *placed = PyTuple_New(count);
  for (Py_ssize_t i = 0; placed && i < count; i++) {
    PyObject *need = PyTuple_GetItem(given->needs, i);
    const int asked = need ? PyObject_IsTrue(need) : -1;
    PyObject *gradient =
        asked > 0 ? pick(PyTuple_GetItem(op->plan.places, i), outs, given->gradients) : Py_None;
    if (asked < 0 || !gradient || PyTuple_SetItem(placed, i, Py_NewRef(gradient)) < 0) {
      Py_CLEAR(placed);
    }
  }
  return placed;
}

static PyObject *run_backward(const bound_gradient *op, tgi_bound_call *bound,
                              const gradient_call *given)
{
  PyObject *tensors[MAX_TENSORS];
  const int eager = tgi_torch_is_eager(op->entry.torch);
  const int transformed = eager > 0 ? tgi_torch_is_transformed(op->entry.torch) : 0;
  if (eager < 0 || transformed < 0 || pick_tensors(op, given, tensors) < 0) {
    return NULL;
  }
  const int verdict =
      eager && !transformed ? tgi_bound_read_inputs(bound, tensors, false) : TGI_NOT_PLAIN;
  if (verdict != TGI_PLAIN) {
    return verdict < 0 ? NULL : Py_NewRef(Py_False);
  }
  if (read_scalars(op, bound, given) < 0) {
    return NULL;
  }
  PyObject *outs = make_outs(op, bound, given, tensors);
  PyObject *placed =
      outs && tgi_bound_run(bound, tensors[0]) == 0 ? place_gradients(op, given, outs) : NULL;
  Py_XDECREF(outs);
  return placed;
}

static PyObject *call_backward(PyObject *capsule, PyObject *args)
{
  const bound_gradient *op = PyCapsule_GetPointer(capsule, "tegula.bound_gradient");
  gradient_call given;
  if (!op || !PyArg_ParseTuple(args, "O!O!O!O!", &PyTuple_Type, &given.needs, &PyTuple_Type,
                               &given.scalars, &PyTuple_Type, &given.saved, &PyTuple_Type,
                               &given.gradients)) {
    return NULL;
  }
  tgi_bound_call bound;
  tgi_bound_begin(&bound, &op->entry);
  PyObject *gradients = run_backward(op, &bound, &given);
  tgi_bound_end(&bound);
  return gradients;
}

/* ---- binding ---- */

static void free_gradient(PyObject *capsule)
{
  bound_gradient *op = PyCapsule_GetPointer(capsule, "tegula.bound_gradient");
  PyObject *owned[] = {op->plan.tensors, op->plan.likes, op->plan.scalars, op->plan.users,
                       op->plan.places};
  tgi_bound_entry_clear(&op->entry);
  for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) {
    Py_XDECREF(owned[i]);
  }
  free(op);
}

/* An output has the shape of an input that is read; only an `acc` output may be like another
 * tensor. */
static bool likes_fit(const tgi_bound_entry *entry, const tgi_gradient_plan *plan)
{
  for (Py_ssize_t i = 0; i < PyTuple_Size(plan->likes); i++) {
    const tg_slot_info *slot = &entry->info->slots[entry->num_inputs + (size_t)i];
    const size_t like = PyLong_AsSize_t(PyTuple_GetItem(plan->likes, i));
    const size_t count =
        slot->role == TG_ROLE_ACC ? (size_t)PyTuple_Size(plan->tensors) : entry->num_inputs;
    if (like >= count) {
      PyErr_Clear();
      return false;
    }
  }
  return true;
}

static bool plan_fits(const tgi_bound_entry *entry, const tgi_gradient_plan *plan)
{
  size_t num_outs = 0;
  for (size_t i = 0; i < entry->info->num_slots; i++) {
    num_outs +=
        entry->info->slots[i].role == TG_ROLE_OUT || entry->info->slots[i].role == TG_ROLE_ACC;
  }
  for (Py_ssize_t i = 0; i < PyTuple_Size(plan->users); i++) {
    if (!PyTuple_Check(PyTuple_GetItem(plan->users, i))) {
      return false;
    }
  }
  const size_t num_tensors = (size_t)PyTuple_Size(plan->tensors);
  return num_tensors >= entry->num_inputs && num_tensors <= MAX_TENSORS && num_outs <= MAX_OUTS &&
         (size_t)PyTuple_Size(plan->likes) == num_outs &&
         (size_t)PyTuple_Size(plan->users) == num_outs &&
         (size_t)PyTuple_Size(plan->scalars) == entry->num_scalars &&
         entry->num_scalars <= MAX_SCALARS && likes_fit(entry, plan);
}

PyObject *tgi_bind_backward(PyObject *module, tgi_torch *torch, tgi_type_table *types,
                            const tg_op_info *info, const tgi_gradient_plan *plan)
{
  static PyMethodDef method = {"bound_backward", call_backward, METH_VARARGS, NULL};
  bound_gradient *op = calloc(1, sizeof *op);
  PyObject *capsule =
      op ? PyCapsule_New(op, "tegula.bound_gradient", free_gradient) : PyErr_NoMemory();
  if (!capsule) {
    free(op);
    return NULL;
  }
  const int status = tgi_bound_entry_set(&op->entry, module, torch, types, info);
  op->plan = (tgi_gradient_plan){Py_NewRef(plan->tensors), Py_NewRef(plan->likes),
                                 Py_NewRef(plan->scalars), Py_NewRef(plan->users),
                                 Py_NewRef(plan->places)};
  PyObject *function = NULL;
  if (status == 0 && plan_fits(&op->entry, plan)) {
    function = PyCFunction_NewEx(&method, capsule, NULL);
  } else if (status == 0) {
    PyErr_Format(PyExc_ValueError,
                 "%s: plan: expected tensors, outputs and scalars of the entry, got %R, %R, %R, %R",
                 info->name, plan->tensors, plan->likes, plan->scalars, plan->users);
  }
  Py_DECREF(capsule);
  return function;
}
