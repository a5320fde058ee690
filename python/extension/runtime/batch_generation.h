/** Generations of several rows at once, by an engine. */
#ifndef TGI_PYTHON_BATCH_GENERATION_H
#define TGI_PYTHON_BATCH_GENERATION_H

#include "generation_settings.h"

/** generate_batch(rows, seeds, **settings): what generate returns, for each row. */
PyObject *tgi_model_generate_batch(PyObject *handle, PyObject *args, PyObject *named);

#endif
