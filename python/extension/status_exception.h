/** Maps the library's status codes to Python's exceptions. */
#ifndef TGI_PYTHON_STATUS_EXCEPTION_H
#define TGI_PYTHON_STATUS_EXCEPTION_H

#include "tensor_argument.h"

/** Sets the exception for `status` with `text`, or the code's own text if that is empty. Returns
 * -1. */
int tgi_raise_status(tg_status status, const char *text);

#endif
