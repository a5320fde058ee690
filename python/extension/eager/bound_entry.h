/** A row of the table on plain dense tensors of PyTorch: reading them, making results beside them.
 * What is not plain is left alone, so that one place, the general way, says what is wrong. */
#ifndef TGI_PYTHON_BOUND_ENTRY_H
#define TGI_PYTHON_BOUND_ENTRY_H

#include "op_call.h"
#include "torch_functions.h"

enum { TGI_NOT_PLAIN = 0, TGI_NEEDS_GRADIENT = 1, TGI_PLAIN = 2 };

typedef struct tgi_bound_row {
  PyObject *module; /* owns the next two */
  const tgi_torch *torch;
  tgi_type_table *types;
  const tg_op_info *info;
  size_t num_inputs, num_scalars;
  bool has_workspace;
  tgi_last_empty *made; /* owned: of the slots after the inputs */
} tgi_bound_row;

typedef struct tgi_bound_call {
  const tgi_bound_row *row;
  int64_t leading[TG_MAX_NDIM]; /* shape of the first input, whose leading axes are everybody's */
  int32_t ndim;
  PyObject *const *args; /* inputs and scalars, for whom the call is handed to */
  bool begun;            /* by whom it was handed to */
  tgi_op_call call;
} tgi_bound_call;

/** Begins a row, whose members are owned: what was a row before is given up by tgi_bound_row_clear.
 * -1 with an exception set on failure. */
int tgi_bound_row_set(tgi_bound_row *row, PyObject *module, const tgi_torch *torch,
                      tgi_type_table *types, const tg_op_info *info);
void tgi_bound_row_clear(tgi_bound_row *row);

/** What follows it ends with tgi_bound_end. */
void tgi_bound_begin(tgi_bound_call *bound, const tgi_bound_row *row);
void tgi_bound_end(tgi_bound_call *bound);

/** Reads one tensor; `grad`: whether TGI_NEEDS_GRADIENT is an answer. These give -1 with an
 * exception set on failure. */
int tgi_bound_read(tgi_bound_call *bound, size_t slot, PyObject *object, bool grad);
/** All inputs, None where there is none. Slots of rank 2 take any rank, by rows. */
int tgi_bound_read_inputs(tgi_bound_call *bound, PyObject *const *values, bool grad);
/** An output that is given. */
int tgi_bound_read_output(tgi_bound_call *bound, size_t slot, PyObject *object, bool grad);
int tgi_bound_read_scalars(tgi_bound_call *bound, PyObject *const *values);

/** Makes an output, after the inputs: of rank 2 with the leading axes, else as long as there are
 * rows; but where input `like` has rank 1, shaped as that. `beside` is the tensor of `like`. NULL
 * with an exception set on failure. */
PyObject *tgi_bound_make(tgi_bound_call *bound, size_t slot, size_t like, PyObject *beside);

/** Makes an output of zeros, of the shape and dtype of a tensor. */
PyObject *tgi_bound_zeros(tgi_bound_call *bound, size_t slot, PyObject *like);

/** `beside`: a tensor on whose device the workspace is made. */
int tgi_bound_run(tgi_bound_call *bound, PyObject *beside);

#endif
