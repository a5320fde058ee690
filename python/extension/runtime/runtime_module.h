/** What the parts of tegula._runtime share: the module's state, and its handles of the runtime's
 * objects. The classes that users see are Python's, in tegula/runtime; a handle checks what the C
 * API does not. */
#ifndef TGI_PYTHON_RUNTIME_MODULE_H
#define TGI_PYTHON_RUNTIME_MODULE_H

#include "array_object.h"
#include "tensor_argument.h"
#include <tegula/chat_template.h>
#include <tegula/model.h>
#include <tegula/tokenizer.h>
#include <tegula/train.h>

typedef struct tgi_runtime_state {
  PyObject *array; /* the type tegula.Array, of _core */
  PyObject *model, *stream, *tokenizer, *chat_template, *trainer; /* types of this module */
  tgi_type_table types;
} tgi_runtime_state;

/** A method or function for a PyMethodDef. */
#define TGI_METHOD(name, function, flags, doc)                                                     \
  {                                                                                                \
    name, (PyCFunction)(void (*)(void))(function), flags, doc                                      \
  }

/** Types of the module; NULL with an exception set on failure. */
PyObject *tgi_model_make_type(PyObject *module);
PyObject *tgi_stream_make_type(PyObject *module);
PyObject *tgi_tokenizer_make_type(PyObject *module);
PyObject *tgi_chat_template_make_type(PyObject *module);
PyObject *tgi_trainer_make_type(PyObject *module);

/** A new object of a module's type, zeroed behind its head. NULL with an exception set on failure.
 */
void *tgi_object_new(PyObject *type);

/** Frees an object that has no more members to free. */
void tgi_object_free(PyObject *self);

/** "cpu", "cuda", "cuda:N". -1 with an exception set on failure. */
int tgi_read_device(const char *name, tg_backend *backend, int32_t *index);

/** "f32", "float32", ... or NULL: TG_DTYPE_NONE. -1 with an exception set on failure. */
int tgi_read_dtype(const char *name, tg_dtype *out);

#endif
