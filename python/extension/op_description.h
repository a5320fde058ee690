/** The op table as Python sees it: which arguments a call takes, in which order. */
#ifndef TGI_PYTHON_OP_DESCRIPTION_H
#define TGI_PYTHON_OP_DESCRIPTION_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030a0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <tegula/tegula.h>

/** Fields that follow from other arguments and are none themselves: the size of the workspace and
 * the length of lists. */
bool tgi_is_implied(const tg_slot_info *slot);

/** A list with a dict for every row: name, op, dir and slots. NULL with an exception set on
 * failure. */
PyObject *tgi_describe_ops(void);

#endif
