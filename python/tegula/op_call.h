/** From the arguments of a Python call to the args struct of an op, field by field of the op table.
 */
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
  PyObject *allocate; /* borrowed: a function that gives the workspace, or NULL */
  bool sizing;
} tgi_op_call;

/** Fills the struct, which is zeroed, from arguments by position, in the order of the table without
 * the implied fields, and by name. -1 with an exception set on failure. */
int tgi_read_arguments(tgi_op_call *call, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);

/** Calls call->allocate for `bytes` bytes and points the struct at them. They live as long as the
 * exporters. -1 with an exception set on failure. */
int tgi_give_workspace(tgi_op_call *call, size_t bytes);

#endif
