/** Inside of tegula.Array: what its parts share. */
#ifndef TGI_PYTHON_ARRAY_MEMORY_H
#define TGI_PYTHON_ARRAY_MEMORY_H

#include "array_object.h"

/** Gives a reference back, under Python's lock; NULL is allowed. */
void tgi_memory_release(tgi_shared_memory *memory);

/** The same with or without it: for those who import the memory. */
void tgi_memory_release_anywhere(tgi_shared_memory *memory);

/** Bytes of an array's elements. -1 with an exception set if they are more than memory has. */
int tgi_array_bytes(tg_dtype dtype, int ndim, const int64_t *shape, size_t *out);

/** An array as tgi_array_new makes it, on a GPU; with zeros if wanted (array_device.c). */
PyObject *tgi_array_new_on_gpu(PyObject *type, tg_dtype dtype, int ndim, const int64_t *shape,
                               int32_t device_index, bool zero);

/** Whether the host can read the elements. */
static inline bool tgi_array_on_host(const tgi_array *array)
{
  return array->view.device < TG_DEVICE_CUDA(0);
}

/** Another view of the array's memory. */
PyObject *tgi_array_part(tgi_array *array, const tg_tensor *view);

/** DLPack's methods of an array (array_export.c). */
PyObject *tgi_array_dlpack(PyObject *array, PyObject *args, PyObject *named);
PyObject *tgi_array_dlpack_device(PyObject *array, PyObject *unused);

/** Python's structure of a buffer, which headers of the limited API hide before 3.11. Its layout is
 * that of every version from 3.10 on. */
typedef struct tgi_py_buffer {
  void *buf;
  PyObject *obj;
  Py_ssize_t len, itemsize;
  int readonly, ndim;
  char *format;
  Py_ssize_t *shape, *strides, *suboffsets;
  void *internal;
} tgi_py_buffer;

/** The slot Py_bf_getbuffer, 1 likewise. */
enum { TGI_SLOT_GETBUFFER = 1 };
int tgi_array_get_buffer(PyObject *array, tgi_py_buffer *buffer, int flags);

static inline bool tgi_strides_are_zero(const tg_tensor *view)
{
  bool zero = true;
  for (int i = 0; i < view->ndim; i++) {
    zero = zero && view->stride[i] == 0;
  }
  return zero;
}

#endif
