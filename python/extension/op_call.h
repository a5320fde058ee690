/** Fills the args struct of an op from the arguments of a Python call, slot by slot of its table
 * entry. */
#ifndef TGI_PYTHON_OP_CALL_H
#define TGI_PYTHON_OP_CALL_H

#include "tensor_argument.h"
#include <stddef.h>

/** Larger than any args struct of the table; checked when the module is loaded. */
#define TGI_ARGS_BYTES 4096

typedef struct tgi_call_args {
  _Alignas(max_align_t) unsigned char fields[TGI_ARGS_BYTES];
} tgi_call_args;

typedef struct tgi_op_call {
  const tg_op_info *info;
  tgi_call_args args;
  tgi_arguments tensors;
  PyObject *allocate; /* borrowed: a function that allocates the workspace, or NULL */
  PyObject *like;     /* borrowed: first argument of `allocate`, before the size; or NULL */
  bool sizing;
} tgi_op_call;

/** Fills the zeroed struct from arguments by position, in the order of the slots without the
 * implied ones, and by name. -1 with an exception set on failure. */
int tgi_read_arguments(tgi_op_call *call, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);

/** Fills the field of slot `index`. None leaves it as it is. -1 with an exception set on failure.
 */
int tgi_read_slot(tgi_op_call *call, size_t index, PyObject *value);

/** Runs the op on an idle context of the tensors' device and stream. A workspace from
 * call->allocate lives as long as the exporters; without it and without memory in its slot the call
 * makes a workspace. *bytes is its size if it was asked for. -1 with an exception set on failure.
 */
int tgi_run_call(tgi_op_call *call, size_t *bytes);

#endif
