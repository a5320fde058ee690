/** What __dlpack__ gives, for tensors that have no C exchange API. */
#ifndef TGI_PYTHON_TENSOR_EXPORT_H
#define TGI_PYTHON_TENSOR_EXPORT_H

#include "tensor_argument.h"

/** The capsule. Of memory on a GPU it is asked for on the stream that the op will run on: the
 * current one of the library that the first such tensor is from, if that tells, else the default
 * one. *meant is the dtype where only its bits could be exported, else left as it is. NULL with an
 * exception set on failure. */
PyObject *tgi_export(tgi_arguments *arguments, PyObject *object, const tgi_known_type *type,
                     DLDataType *meant);

#endif
