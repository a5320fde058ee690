/** A tokenizer, and the chat template of a directory. */
#ifndef TGI_PYTHON_TOKENIZER_HANDLE_H
#define TGI_PYTHON_TOKENIZER_HANDLE_H

#include "runtime_module.h"

/** The tokenizer of a handle, or NULL for None. -1 with an exception set for anything else. */
int tgi_tokenizer_of(const tgi_runtime_state *state, PyObject *object, const tg_tokenizer **out);

/** open_tokenizer(directory): None means bytes. */
PyObject *tgi_tokenizer_open(PyObject *module, PyObject *directory);

/** open_chat_template(directory, source) */
PyObject *tgi_chat_template_open(PyObject *module, PyObject *args);

#endif
