/** The backward of a row op bound to PyTorch, as bound_op.h's forward is. */
#ifndef TGI_PYTHON_BOUND_GRADIENT_H
#define TGI_PYTHON_BOUND_GRADIENT_H

#include "bound_entry.h"

/** Where things of a backward come from, as tuples of the package.
 * tensors: for every input, and for tensors after them that only show a gradient's shape, the
 *   number of a saved tensor, or of a gradient: -1 for the first, -2 ...; None: absent.
 * likes: for every output the number among `tensors` of what it is shaped like.
 * scalars: for every scalar its number among the forward's, or a function that gives it.
 * users: for every output the arguments of the forward that ask for it, as a tuple.
 * places: for every argument of the forward the number of its gradient among the outputs, or, of an
 *   output's own gradient, from -1 downwards; None: it has none. */
typedef struct tgi_gradient_plan {
  PyObject *tensors, *likes, *scalars, *users, *places;
} tgi_gradient_plan;

/** bind_backward(row, tensors, likes, scalars, users, places): a function of (needs, scalars,
 * saved, gradients), tuples all, that gives the gradient of each argument of the forward; or False
 * where a tensor is not plain, and then nothing has run. NULL with an exception set on failure. */
PyObject *tgi_bind_backward(PyObject *module, tgi_torch *torch, tgi_type_table *types,
                            const tg_op_info *info, const tgi_gradient_plan *plan);

#endif
