/** What the package's extension needs of PyTorch, which it is not compiled against: types,
 * functions and names, given once. */
#ifndef TGI_PYTHON_TORCH_FUNCTIONS_H
#define TGI_PYTHON_TORCH_FUNCTIONS_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030a0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <tegula/tegula.h>

typedef struct tgi_torch {
  PyObject *tensor, *parameter;                          /* the types that are plain */
  PyObject *grad_enabled, *functorch_active, *num_modes; /* functions without arguments */
  PyObject *forward_ad;                                  /* names of a module: _current_level */
  PyObject *is_neg;                                      /* of a tensor */
  PyObject *empty_cpu, *empty_cuda; /* of sizes, strides, dtype; on the current device */
  PyObject *empty_beside;           /* of a tensor, whose device it takes, sizes, dtype */
  PyObject *zeros_like;             /* of a tensor */
  PyObject *allocate;               /* of a tensor and a number of bytes */
  PyObject *increment_version;
  PyObject *float32, *float64, *float16, *bfloat16;
  PyObject *requires_grad, *current_level, *dtype, *to_save, *scalars; /* names of attributes */
} tgi_torch;

/** use_torch(...): the members up to bfloat16 in their order. -1 with an exception set on failure.
 */
int tgi_torch_set(tgi_torch *torch, PyObject *args);

int tgi_torch_visit(tgi_torch *torch, visitproc visit, void *arg);
void tgi_torch_clear(tgi_torch *torch);

/** Eager mode without modes or forward derivatives? -1 with an exception set on failure. */
int tgi_torch_is_eager(const tgi_torch *torch);

/** Whether a transform of torch.func is on. What it has wrapped has no memory to read; the others'
 * values may be read and made as ever, but autograd does not take them. -1 with an exception set on
 * failure. */
int tgi_torch_is_transformed(const tgi_torch *torch);

/** The truth of an object that is given up; NULL is a failure. -1 with an exception set. */
int tgi_take_truth(PyObject *object);

/** What was asked for last in one place: nearly always the next call's wish too, whose Python
 * objects then need not be made again. Zeroed at first. */
typedef struct tgi_last_empty {
  int64_t shape[TG_MAX_NDIM];
  int32_t ndim;
  tg_dtype dtype;
  PyObject *args; /* sizes, strides, dtype */
} tgi_last_empty;

/** The dtype as PyTorch's object, which is borrowed; NULL without an exception: none of the
 * floating-point ones. */
PyObject *tgi_torch_dtype(const tgi_torch *torch, tg_dtype dtype);

/** A contiguous tensor without values, on the CPU or the current CUDA device as `device` says:
 * where that is another one, it is for the caller to see and to ask for a tensor
 * `tgi_torch_empty_beside` one that lies right. `object` is PyTorch's for the dtype. NULL with an
 * exception set on failure. */
PyObject *tgi_torch_empty(const tgi_torch *torch, tgi_last_empty *last, const int64_t *shape,
                          int32_t ndim, tg_dtype dtype, PyObject *object, int32_t device);
PyObject *tgi_torch_empty_beside(const tgi_torch *torch, PyObject *tensor, const int64_t *shape,
                                 int32_t ndim, PyObject *dtype);

#endif
