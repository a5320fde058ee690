/** A generation to its end, without Python's lock. */
#ifndef TGI_PYTHON_WHOLE_GENERATION_H
#define TGI_PYTHON_WHOLE_GENERATION_H

#include "generation_settings.h"

/** (ids, finish reason, log-probabilities or None, seconds of the prompt, of the tokens). */
PyObject *tgi_model_generate(PyObject *handle, PyObject *args, PyObject *named);

#endif
