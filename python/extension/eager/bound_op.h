/** A row of the table bound to PyTorch: a function for what nearly every eager call is, plain dense
 * tensors, that does in C what the general way does in Python. What is not plain it leaves alone,
 * so that one place says what is wrong with a call. */
#ifndef TGI_PYTHON_BOUND_OP_H
#define TGI_PYTHON_BOUND_OP_H

#include "bound_entry.h"

/** bind(row, results[, differentiate]): a function of (out, *inputs, *scalars) that gives the
 * results, which are names of outputs, in their order; one alone is no tuple. It makes them like
 * the first input, or of rank 1 with one element for each of its rows; `out`, if it is not None, is
 * memory for the first. It gives False for a call that is not plain; a plain one whose gradient is
 * asked for is `differentiate`'s, called with the inputs, within which bind_forward's function may
 * be called; and True where there is none; nothing has run then. Slots of rank 2 take dense tensors
 * of any rank, by rows. `module` owns `torch` and `types`. NULL with an exception set on failure.
 */
PyObject *tgi_bind(PyObject *module, tgi_torch *torch, tgi_type_table *types,
                   const tg_op_info *info, PyObject *results, PyObject *differentiate);

/** What that function does, of a capsule that is its self; `count` is as tgi_is_bound likes it. */
PyObject *tgi_call_bound(PyObject *capsule, PyObject *const *args, Py_ssize_t count);

/** Whether it is one that takes so many arguments. */
bool tgi_is_bound(PyObject *capsule, Py_ssize_t count);

/** bind_forward(row, results, num_public, kept, keeps_scalars): the forward of an
 * autograd.Function whose apply is the `differentiate` above. It gives the first `num_public`
 * results, saves for the backward what `kept` numbers, inputs from 0 and results from -1 downwards,
 * and leaves the scalars in ctx.scalars if asked to. NULL with an exception set on failure. */
PyObject *tgi_bind_forward(PyObject *module, tgi_torch *torch, tgi_type_table *types,
                           const tg_op_info *info, PyObject *results, Py_ssize_t num_public,
                           PyObject *kept, bool keeps_scalars);

#endif
