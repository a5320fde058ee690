/** The fast eager path of rowwise ops: a table entry bound to PyTorch. The functions made here
 * check the arguments, allocate the results and run the op in C. They decline a call that is not
 * plain (anything but dense tensors of PyTorch in eager mode) without side effects; the caller then
 * uses the general path in Python, which is the only place that reports such errors. */
#ifndef TGI_PYTHON_BOUND_OP_H
#define TGI_PYTHON_BOUND_OP_H

#include "bound_entry.h"

/** bind(entry, results[, differentiate]): makes a function of (out, *inputs, *scalars).
 *
 * It returns the named outputs in order, as a tuple if there are several. Each is allocated like
 * the first input, or with rank 1 and one element for each of its rows. `out`, unless None, is
 * memory for the first output. Slots of rank 2 accept dense tensors of any rank: leading axes are
 * rows.
 *
 * It returns False for a call that is not plain. If a gradient is needed, it returns
 * differentiate(*inputs), within which the function of bind_forward may be called, or True without
 * `differentiate`. In the cases of False and True nothing has run.
 *
 * `module` owns `torch` and `types`. NULL with an exception set on failure. */
PyObject *tgi_bind(PyObject *module, tgi_torch *torch, tgi_type_table *types,
                   const tg_op_info *info, PyObject *results, PyObject *differentiate);

/** bind_forward(entry, results, num_public, kept, keeps_scalars): makes the forward of the
 * autograd.Function whose apply is the `differentiate` above. It returns the first `num_public`
 * results. It saves for the backward the tensors numbered in `kept`: inputs from 0 upwards, results
 * from -1 downwards; and the scalars in ctx.scalars if `keeps_scalars`. NULL with an exception set
 * on failure. */
PyObject *tgi_bind_forward(PyObject *module, tgi_torch *torch, tgi_type_table *types,
                           const tg_op_info *info, PyObject *results, Py_ssize_t num_public,
                           PyObject *kept, bool keeps_scalars);

#endif
