/** Types of an autograd.Function of which autograd has what it asks for sooner. With every call it
 * asks for a handful of attributes by names that it makes anew, so that Python's cache has none of
 * them: hashing, and searching the types above, take longer than making the graph's node. */
#ifndef TGI_PYTHON_FUNCTION_TYPE_H
#define TGI_PYTHON_FUNCTION_TYPE_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030a0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/** function_type(base): a metaclass derived from `base`, autograd.Function's own. NULL with an
 * exception set on failure. */
PyObject *tgi_function_type(PyObject *base);

/** keep_attributes(type, names): from now on a type of that metaclass has the attributes, a tuple
 * of ASCII names, at hand as they are now, whatever they are set to later. It lives for ever. -1
 * with an exception set on failure. */
int tgi_keep_attributes(PyObject *type, PyObject *names);

#endif
