/** What a model holds: methods of its handle, and functions of the module. */
#ifndef TGI_PYTHON_MODEL_CONTENTS_H
#define TGI_PYTHON_MODEL_CONTENTS_H

#include "model_handle.h"

PyObject *tgi_model_open(PyObject *module, PyObject *args, PyObject *named);
PyObject *tgi_model_parameters(PyObject *handle, PyObject *writable);
PyObject *tgi_model_set_parameter(PyObject *handle, PyObject *args);
PyObject *tgi_model_save(PyObject *handle, PyObject *args);
PyObject *tgi_model_info(PyObject *handle, PyObject *unused);
PyObject *tgi_model_generation(PyObject *handle, PyObject *unused);
PyObject *tgi_model_num_sessions(PyObject *handle, PyObject *unused);

/** The table of presets, and the config.json of one as text. */
PyObject *tgi_list_presets(PyObject *module, PyObject *unused);
PyObject *tgi_preset_config_text(PyObject *module, PyObject *args);

/** (rows as lists, whether they were one row, the dtype's name). */
PyObject *tgi_rows_object(const tgi_id_rows *rows);

#endif
