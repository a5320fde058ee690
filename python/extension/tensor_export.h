/** Exports through __dlpack__, for tensors without the C exchange API. */
#ifndef TGI_PYTHON_TENSOR_EXPORT_H
#define TGI_PYTHON_TENSOR_EXPORT_H

#include "tensor_argument.h"

/** The capsule. GPU memory is exported for the stream that the op runs on: the current stream of
 * the first such tensor's library if it reports one, else the default stream. *meant is set to the
 * dtype if only its bits could be exported. NULL with an exception set on failure. */
PyObject *tgi_export(tgi_arguments *arguments, PyObject *object, const tgi_known_type *type,
                     DLDataType *meant);

#endif
