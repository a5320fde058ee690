/** Functions of the package that begin in C. The interpreter calls a function of Python through a
 * pointer, and from 3.12 on lets an extension put its own there (PyFunction_SetVectorcall): ours
 * places the arguments, calls a bound op, and goes on with the function as it is written where that
 * gives no result or anything about the call is uncommon. So the function says what it does, and
 * who reads its code (Dynamo, inspect, pickle) finds it. */
#ifndef TGI_PYTHON_SHORT_CALL_H
#define TGI_PYTHON_SHORT_CALL_H

#include "bound_op.h"

/** begin_in_c(function, bound, num_positional, parameters, defaults). `bound` is a function of
 * bind, `defaults` its arguments where a call gives none, Ellipsis where it must. `parameters`, in
 * the function's order, are tuples: the name; the number among bound's arguments, or None where it
 * is only looked at; a dict of what stands for which value, or None; whether None is left to the
 * function. True; False where Python has no such pointer. NULL with an exception set on failure. */
PyObject *tgi_begin_in_c(PyObject *function, PyObject *bound, Py_ssize_t num_positional,
                         PyObject *parameters, PyObject *defaults);

#endif
