/** The op table as Python objects: the arguments of each op and their order. */
#ifndef TGI_PYTHON_OP_DESCRIPTION_H
#define TGI_PYTHON_OP_DESCRIPTION_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030a0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <tegula/tegula.h>

/** Whether a slot follows from other arguments and is no argument itself: the size of the
 * workspace, the length of lists. */
bool tgi_is_implied(const tg_slot_info *slot);

/** A list with a dict for every table entry: name, op, dir and slots. NULL with an exception set on
 * failure. */
PyObject *tgi_describe_ops(void);

#endif
