/** A row of the table bound to PyTorch: a function for what nearly every eager call is, plain dense
 * tensors, that does in C what the general way does in Python. What is not plain it leaves alone,
 * so that one place says what is wrong with a call. */
#ifndef TGI_PYTHON_BOUND_OP_H
#define TGI_PYTHON_BOUND_OP_H

#include "op_call.h"

/** What is needed of PyTorch, given once by the package. */
typedef struct tgi_torch {
  PyObject *tensor, *parameter;                          /* the types that are plain */
  PyObject *grad_enabled, *functorch_active, *num_modes; /* functions without arguments */
  PyObject *forward_ad;                                  /* module: _current_level */
  PyObject *is_neg, *empty_like, *statistic, *allocate;  /* functions of tensors */
  PyObject *increment_version;
  PyObject *requires_grad, *current_level; /* names of attributes */
} tgi_torch;

/** use_torch(tensor, parameter, grad_enabled, functorch_active, num_modes, forward_ad, is_neg,
 * empty_like, statistic, allocate, increment_version). -1 with an exception set on failure. */
int tgi_torch_set(tgi_torch *torch, PyObject *args);

int tgi_torch_visit(tgi_torch *torch, visitproc visit, void *arg);
void tgi_torch_clear(tgi_torch *torch);

/** bind(row, results): a function of (out, *inputs, *scalars) that gives the results, which are
 * names of outputs, in their order; one alone is no tuple. It makes them like the first input, or
 * of rank 1 with one element for each of its rows; `out`, if it is not None, is memory for the
 * first. It gives False for a call that is not plain, and True for a plain one whose gradient is
 * asked for; neither has run then. Slots of rank 2 take dense tensors of any rank, by rows.
 * `module` owns `torch` and `types`. NULL with an exception set on failure. */
PyObject *tgi_bind(PyObject *module, tgi_torch *torch, tgi_type_table *types,
                   const tg_op_info *info, PyObject *results);

#endif
