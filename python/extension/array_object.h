/** tegula.Array: elements for results without another library, in host memory or a GPU's. It
 * exports DLPack, and of host memory the buffer protocol, and so is a view for NumPy, PyTorch, JAX
 * and the like. The type belongs to _core; other modules of the package make arrays of it. */
#ifndef TGI_PYTHON_ARRAY_OBJECT_H
#define TGI_PYTHON_ARRAY_OBJECT_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030a0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <tegula/tegula.h>

/** Memory that is not the host's: how it is freed, and how to wait for what was written to it. */
typedef struct tgi_memory_kind {
  void (*release)(void *bytes, int32_t device_index);
  tg_status (*wait)(int32_t device_index, tg_error *error);
} tgi_memory_kind;

/** Memory that arrays, buffers and DLPack capsules share. */
typedef struct tgi_shared_memory {
  atomic_long references;
  void *bytes;                 /* to be freed; NULL: the owner's */
  const tgi_memory_kind *kind; /* of the bytes; NULL: the host's */
  int32_t device_index;
  PyObject *owner; /* kept alive; NULL: none */
} tgi_shared_memory;

typedef struct tgi_array {
  PyObject ob_base;
  tg_tensor view; /* strides are set */
  tgi_shared_memory *memory;
  bool writable;
  Py_ssize_t extents[TG_MAX_NDIM], steps[TG_MAX_NDIM]; /* of buffers; steps in bytes */
} tgi_array;

/** The type, for the module's state. NULL with an exception set on failure. */
PyObject *tgi_array_make_type(PyObject *module);

/** A contiguous array of `shape` with memory of its own, not initialised. NULL with an exception
 * set on failure. */
PyObject *tgi_array_new(PyObject *type, tg_dtype dtype, int ndim, const int64_t *shape);

/** An array of `bytes`, of this kind, which it frees. NULL with an exception set on failure; the
 * bytes have been freed then. */
PyObject *tgi_array_own(PyObject *type, const tg_tensor *view, void *bytes,
                        const tgi_memory_kind *kind, int32_t device_index);

/** A view of memory that `owner` keeps. */
PyObject *tgi_array_view(PyObject *type, const tg_tensor *view, PyObject *owner, bool writable);

/** The elements' memory. */
void *tgi_array_data(PyObject *array);

/** "float32"; NULL for a dtype without such a name. */
const char *tgi_dtype_python_name(tg_dtype dtype);

/** The dtype of a name. -1 with an exception set if there is none. */
int tgi_dtype_of_name(PyObject *name, tg_dtype *out);

#endif
