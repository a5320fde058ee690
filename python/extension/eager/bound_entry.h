/** A table entry applied to plain dense tensors of PyTorch: reads arguments into the args struct,
 * allocates results, runs the op. What is not plain is declined without an exception. */
#ifndef TGI_PYTHON_BOUND_ENTRY_H
#define TGI_PYTHON_BOUND_ENTRY_H

#include "op_call.h"
#include "torch_functions.h"

/** What reading a call found. Functions that return it return -1 with an exception set on failure.
 */
enum { TGI_NOT_PLAIN = 0, TGI_NEEDS_GRADIENT = 1, TGI_PLAIN = 2 };

typedef struct tgi_bound_entry {
  PyObject *module; /* owns torch and types */
  const tgi_torch *torch;
  tgi_type_table *types;
  const tg_op_info *info;
  size_t num_inputs, num_scalars;
  bool has_workspace;
  tgi_last_empty *made; /* owned; one for each slot after the inputs */
} tgi_bound_entry;

typedef struct tgi_bound_call {
  const tgi_bound_entry *entry;
  int64_t leading[TG_MAX_NDIM]; /* the first input's shape; all inputs share its leading axes */
  int32_t ndim;
  PyObject *const *args; /* inputs and scalars, for the forward of an autograd.Function */
  bool begun;            /* that forward has started */
  tgi_op_call call;
} tgi_bound_call;

/** Fills an entry; tgi_bound_entry_clear releases what it owns. -1 with an exception set on
 * failure.
 */
int tgi_bound_entry_set(tgi_bound_entry *entry, PyObject *module, const tgi_torch *torch,
                        tgi_type_table *types, const tg_op_info *info);
void tgi_bound_entry_clear(tgi_bound_entry *entry);

/** Begins a call, which tgi_bound_end ends. */
void tgi_bound_begin(tgi_bound_call *bound, const tgi_bound_entry *entry);
void tgi_bound_end(tgi_bound_call *bound);

/** Reads one tensor. Returns TGI_NEEDS_GRADIENT only if `grad` is set. */
int tgi_bound_read(tgi_bound_call *bound, size_t index, PyObject *object, bool grad);
/** Reads all inputs; None means absent. Slots of rank 2 accept any rank: leading axes are rows. */
int tgi_bound_read_inputs(tgi_bound_call *bound, PyObject *const *values, bool grad);
/** Reads an output that the caller provides. */
int tgi_bound_read_output(tgi_bound_call *bound, size_t index, PyObject *object, bool grad);
/** -1 with an exception set on failure. */
int tgi_bound_read_scalars(tgi_bound_call *bound, PyObject *const *values);

/** Allocates an output after the inputs were read. A slot of rank 2 gets the leading axes; another
 * has one element for each row, or the shape of input `like` if that has rank 1. `beside` is the
 * tensor of `like`. NULL with an exception set on failure. */
PyObject *tgi_bound_make(tgi_bound_call *bound, size_t slot, size_t like, PyObject *beside);

/** Allocates an output of zeros with the shape and dtype of a tensor. */
PyObject *tgi_bound_zeros(tgi_bound_call *bound, size_t slot, PyObject *like);

/** Runs the op; the workspace is allocated on the device of `beside`. */
int tgi_bound_run(tgi_bound_call *bound, PyObject *beside);

#endif
