/** A trainer of a model. */
#ifndef TGI_PYTHON_TRAINER_HANDLE_H
#define TGI_PYTHON_TRAINER_HANDLE_H

#include "model_handle.h"

/** open_trainer(model, **options), plan_trainer(model, **options): [(name, bytes), ...]. */
PyObject *tgi_trainer_open(PyObject *module, PyObject *args, PyObject *named);
PyObject *tgi_trainer_plan(PyObject *module, PyObject *args, PyObject *named);

#endif
