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
  PyObject *like;     /* borrowed: the tensor that `allocate` gets before the size, or NULL */
  bool sizing;
} tgi_op_call;

/** Fills the struct, which is zeroed, from arguments by position, in the order of the table without
 * the implied fields, and by name. -1 with an exception set on failure. */
int tgi_read_arguments(tgi_op_call *call, PyObject *const *args, Py_ssize_t nargs,
                       PyObject *kwnames);

/** Fills the field of slot `index`. None leaves it as it is. -1 with an exception set on failure.
 */
int tgi_read_slot(tgi_op_call *call, size_t index, PyObject *value);

/** Runs the op on an idle context of the tensors' device and stream. Memory that call->allocate
 * gives for the workspace lives as long as the exporters. *bytes is the workspace's size, where it
 * was asked for. -1 with an exception set on failure. */
int tgi_run_call(tgi_op_call *call, size_t *bytes);

#endif
