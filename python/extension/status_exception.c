#include "status_exception.h"

int tgi_raise_status(tg_status status, const char *text)
{
  PyObject *exception = PyExc_RuntimeError;
  if (status == TG_BAD_ARGUMENT || status == TG_BAD_SHAPE) {
    exception = PyExc_ValueError;
  } else if (status == TG_BAD_DTYPE) {
    exception = PyExc_TypeError;
  } else if (status == TG_UNSUPPORTED) {
    exception = PyExc_NotImplementedError;
  } else if (status == TG_NO_MEMORY) {
    exception = PyExc_MemoryError;
  }
  PyErr_SetString(exception, text[0] ? text : tg_status_text(status));
  return -1;
}
