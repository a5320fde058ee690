/** _core's functions that make arrays. */
#ifndef TGI_PYTHON_ARRAY_FUNCTIONS_H
#define TGI_PYTHON_ARRAY_FUNCTIONS_H

#include "array_object.h"

/** empty(shape, dtype): not initialised. */
PyObject *tgi_array_empty(PyObject *type, PyObject *args);

/** array(values, shape, dtype): of a flat sequence of numbers. */
PyObject *tgi_array_from_values(PyObject *type, PyObject *args);

#endif
