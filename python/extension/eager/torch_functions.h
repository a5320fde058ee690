/** Types, functions and names of PyTorch that the extension calls. It is not compiled against
 * PyTorch: the package passes them once, through use_torch. */
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
  PyObject *tensor, *parameter;                          /* types of plain tensors */
  PyObject *grad_enabled, *functorch_active, *num_modes; /* functions without arguments */
  PyObject *forward_ad;                                  /* a module's dict, with _current_level */
  PyObject *is_neg;                                      /* of a tensor */
  PyObject *empty_cpu, *empty_cuda; /* of sizes, strides, dtype; on the current device */
  PyObject *empty_beside;           /* of a tensor on the wanted device, sizes, dtype */
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

/** Whether the call runs eagerly, without dispatch modes or forward-mode derivatives. -1 with an
 * exception set on failure. */
int tgi_torch_is_eager(const tgi_torch *torch);

/** Whether a transform of torch.func is active. A tensor that it wrapped has no memory to read;
 * other tensors can be read, but autograd.Function.apply refuses them. -1 with an exception set on
 * failure. */
int tgi_torch_is_transformed(const tgi_torch *torch);

/** The truth of an object, which is released. -1 with an exception set if it is NULL or fails. */
int tgi_take_truth(PyObject *object);

/** The last allocation of one slot. The next call nearly always repeats it and reuses the Python
 * objects. Zeroed at first. */
typedef struct tgi_last_empty {
  int64_t shape[TG_MAX_NDIM];
  int32_t ndim;
  tg_dtype dtype;
  PyObject *args; /* sizes, strides, dtype */
} tgi_last_empty;

/** PyTorch's object for a floating-point dtype, borrowed; NULL without an exception for others. */
PyObject *tgi_torch_dtype(const tgi_torch *torch, tg_dtype dtype);

/** An uninitialised contiguous tensor on the CPU or, for any CUDA `device`, on the current CUDA
 * device. The caller compares devices and falls back to tgi_torch_empty_beside. `object` is
 * PyTorch's for the dtype. NULL with an exception set on failure. */
PyObject *tgi_torch_empty(const tgi_torch *torch, tgi_last_empty *last, const int64_t *shape,
                          int32_t ndim, tg_dtype dtype, PyObject *object, int32_t device);
PyObject *tgi_torch_empty_beside(const tgi_torch *torch, PyObject *tensor, const int64_t *shape,
                                 int32_t ndim, PyObject *dtype);

#endif
