/** An iterator over the tokens of a generation: each pass runs when its token is asked for. */
#ifndef TGI_PYTHON_TOKEN_STREAM_H
#define TGI_PYTHON_TOKEN_STREAM_H

#include "generation_settings.h"

/** Takes the arguments of tgi_settings_read. */
PyObject *tgi_model_stream(PyObject *handle, PyObject *args, PyObject *named);

#endif
