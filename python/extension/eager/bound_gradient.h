/** The backward of a rowwise op, bound to PyTorch as bound_op.h binds its forward. */
#ifndef TGI_PYTHON_BOUND_GRADIENT_H
#define TGI_PYTHON_BOUND_GRADIENT_H

#include "bound_entry.h"

/** Sources and targets of a backward, as tuples made by the package.
 * tensors: for each input of the backward, then for tensors that only give a gradient's shape: the
 *   number of a saved tensor from 0 upwards, of an incoming gradient from -1 downwards, or None.
 * likes: for each output, the index in `tensors` of the tensor that has its shape.
 * scalars: for each scalar, its number among the forward's, or a function that returns it.
 * users: for each output, a tuple of the forward's arguments whose gradient needs it.
 * places: for each argument of the forward, the output that is its gradient; from -1 downwards the
 *   incoming gradient that is passed on; None without one. */
typedef struct tgi_gradient_plan {
  PyObject *tensors, *likes, *scalars, *users, *places;
} tgi_gradient_plan;

/** bind_backward(entry, tensors, likes, scalars, users, places): makes a function of (needs,
 * scalars, saved, gradients), all tuples, that returns the gradient of each argument of the
 * forward. It returns False, and nothing has run, if a tensor is not plain. NULL with an exception
 * set on failure. */
PyObject *tgi_bind_backward(PyObject *module, tgi_torch *torch, tgi_type_table *types,
                            const tg_op_info *info, const tgi_gradient_plan *plan);

#endif
