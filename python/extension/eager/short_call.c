#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "short_call.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARAMETERS = 12, MAX_VALUES = 12, MAX_CALLS = 64, ONLY_LOOKED_AT = -1 };

/* Python's interface beyond the limited one of 3.10, found by name. */
typedef PyObject *(*vectorcall)(PyObject *function, PyObject *const *args, size_t nargs,
                                PyObject *kwnames);
typedef void (*any_function)(void);

static struct {
  void (*set)(PyObject *function, vectorcall call);
  vectorcall (*get)(PyObject *function);
  any_function (*evaluator)(PyInterpreterState *interpreter);
  any_function usual; /* evaluator */
} python;

typedef struct parameter {
  PyObject *name;
  PyObject *choices; /* dict, or NULL */
  int place;         /* among the values, or ONLY_LOOKED_AT */
  bool needed;       /* None is left to the function */
} parameter;

/* Of a function, which it keeps alive for ever, as its own objects: so pointers tell functions
 * apart, and a call needs no lock beside Python's. */
typedef struct short_call {
  PyObject *function, *bound; /* bound: the capsule */
  vectorcall written;         /* the function's own */
  size_t num_positional, num_parameters, num_values;
  parameter parameters[MAX_PARAMETERS];
  PyObject *defaults[MAX_VALUES]; /* NULL: there is none */
} short_call;

static short_call *calls[MAX_CALLS];
static size_t num_calls;

/* The function's place, or the free one where it belongs. There is always one that is free. */
static short_call **find(const PyObject *function)
{
  size_t i = (uintptr_t)function / 16 % MAX_CALLS;
  while (calls[i] && calls[i]->function != function) {
    i = (i + 1) % MAX_CALLS;
  }
  return &calls[i];
}

/* ---- the call ---- */

static bool place(const parameter *to, PyObject *value, PyObject **values)
{
  if (to->needed && value == Py_None) {
    return false;
  }
  if (to->choices) {
    value = PyDict_GetItemWithError(to->choices, value);
    if (!value) {
      PyErr_Clear();
      return false;
    }
  }
  if (to->place != ONLY_LOOKED_AT) {
    values[to->place] = value;
  }
  return true;
}

/* Borrowed values. False: the function says what is wrong with its arguments, or finds a way. */
static bool place_all(const short_call *call, PyObject *const *args, size_t nargs,
                      PyObject *kwnames, PyObject **values)
{
  if (nargs > call->num_positional) {
    return false;
  }
  memcpy(values, call->defaults, call->num_values * sizeof *values);
  for (size_t i = 0; i < nargs; i++) {
    if (!place(&call->parameters[i], args[i], values)) {
      return false;
    }
  }
  const Py_ssize_t num_named = kwnames ? PyTuple_Size(kwnames) : 0;
  for (Py_ssize_t k = 0; k < num_named; k++) {
    const PyObject *name = PyTuple_GetItem(kwnames, k); /* interned, as nearly all are */
    size_t i = nargs;
    while (i < call->num_parameters && call->parameters[i].name != name) {
      i++;
    }
    if (i == call->num_parameters ||
        !place(&call->parameters[i], args[nargs + (size_t)k], values)) {
      return false;
    }
  }
  for (size_t i = 0; i < call->num_values; i++) {
    if (!values[i]) {
      return false;
    }
  }
  return true;
}

static PyObject *begin(PyObject *function, PyObject *const *args, size_t flagged_nargs,
                       PyObject *kwnames)
{
  const size_t nargs = flagged_nargs & (SIZE_MAX >> 1); /* PY_VECTORCALL_ARGUMENTS_OFFSET */
  const short_call *call = *find(function);
  PyObject *values[MAX_VALUES];
  /* Who evaluates frames himself, as Dynamo while it compiles, is to see the function's. */
  if (python.evaluator(PyInterpreterState_Get()) == python.usual &&
      place_all(call, args, nargs, kwnames, values)) {
    PyObject *result = tgi_call_bound(call->bound, values, (Py_ssize_t)call->num_values);
    if (result != Py_False && result != Py_True) {
      return result;
    }
    Py_DECREF(result);
  }
  return call->written(function, args, flagged_nargs, kwnames);
}

/* ---- beginning ---- */

/* By name, and as the union's other member: ISO C has no cast from an object's pointer. */
static any_function symbol(const char *name)
{
  union {
    void *object;
    any_function function;
  } found = {dlsym(RTLD_DEFAULT, name)};
  return found.function;
}

static bool find_python(void)
{
  python.set = (void (*)(PyObject *, vectorcall))symbol("PyFunction_SetVectorcall");
  python.get = (vectorcall(*)(PyObject *))symbol("PyVectorcall_Function");
  python.evaluator =
      (any_function(*)(PyInterpreterState *))symbol("_PyInterpreterState_GetEvalFrameFunc");
  python.usual = symbol("_PyEval_EvalFrameDefault");
  return python.set && python.get && python.evaluator && python.usual;
}

static bool read_parameter(PyObject *from, Py_ssize_t num_values, parameter *to)
{
  PyObject *number = NULL, *choices = NULL;
  int needed = 0;
  if (!PyTuple_Check(from) ||
      !PyArg_ParseTuple(from, "UOOp", &to->name, &number, &choices, &needed)) {
    return false;
  }
  const long place = number == Py_None ? ONLY_LOOKED_AT : PyLong_AsLong(number);
  if (place < ONLY_LOOKED_AT || place >= num_values || PyErr_Occurred() ||
      (choices != Py_None && !PyDict_Check(choices))) {
    return false;
  }
  to->place = (int)place;
  to->needed = needed;
  to->choices = choices == Py_None ? NULL : choices;
  return true;
}

static bool read_call(short_call *call, PyObject *parameters, PyObject *defaults)
{
  const Py_ssize_t num_parameters = PyTuple_Size(parameters), num_values = PyTuple_Size(defaults);
  if (num_parameters > MAX_PARAMETERS || num_values > MAX_VALUES ||
      call->num_positional > (size_t)num_parameters) {
    return false;
  }
  for (Py_ssize_t i = 0; i < num_parameters; i++) {
    if (!read_parameter(PyTuple_GetItem(parameters, i), num_values, &call->parameters[i])) {
      return false;
    }
  }
  for (Py_ssize_t i = 0; i < num_values; i++) {
    PyObject *value = PyTuple_GetItem(defaults, i);
    call->defaults[i] = value == Py_Ellipsis ? NULL : value;
  }
  call->num_parameters = (size_t)num_parameters;
  call->num_values = (size_t)num_values;
  return true;
}

static bool is_function(PyObject *object)
{
  PyObject *types = PyImport_ImportModule("types");
  PyObject *type = types ? PyObject_GetAttrString(types, "FunctionType") : NULL;
  const bool is = type && (PyObject *)Py_TYPE(object) == type;
  PyErr_Clear();
  Py_XDECREF(types);
  Py_XDECREF(type);
  return is;
}

PyObject *tgi_begin_in_c(PyObject *function, PyObject *bound, Py_ssize_t num_positional,
                         PyObject *parameters, PyObject *defaults)
{
  if (!find_python()) {
    return Py_NewRef(Py_False);
  }
  PyObject *capsule = PyCFunction_Check(bound) ? PyCFunction_GetSelf(bound) : NULL;
  short_call **where = find(function);
  short_call *call = calloc(1, sizeof *call);
  if (!call) {
    return PyErr_NoMemory();
  }
  call->num_positional = (size_t)num_positional;
  if (!is_function(function) || *where || num_calls + 1 == MAX_CALLS || num_positional < 0 ||
      !tgi_is_bound(capsule, PyTuple_Size(defaults)) || !read_call(call, parameters, defaults)) {
    free(call);
    PyErr_Format(
        PyExc_ValueError,
        "begin_in_c: expected a function of Python, for the first time, a bound op and its "
        "arguments, got %R, %R, %R, %R",
        function, bound, parameters, defaults);
    return NULL;
  }
  call->function = Py_NewRef(function);
  call->bound = Py_NewRef(capsule);
  call->written = python.get(function);
  Py_INCREF(parameters); /* own what was read from them */
  Py_INCREF(defaults);
  *where = call;
  num_calls++;
  python.set(function, begin);
  return Py_NewRef(Py_True);
}
