/* The handle of a chat template. */
#include "status_exception.h"
#include "tokenizer_handle.h"

typedef struct template_handle {
  PyObject ob_base;
  tg_chat_template *chat_template;
} template_handle;

static const tg_chat_template *template_in(PyObject *self)
{
  return ((template_handle *)(void *)self)->chat_template;
}

static void dealloc(PyObject *self)
{
  tg_chat_template_destroy(((template_handle *)(void *)self)->chat_template);
  tgi_object_free(self);
}

PyObject *tgi_chat_template_open(PyObject *module, PyObject *args)
{
  const tgi_runtime_state *state = PyModule_GetState(module);
  const char *directory, *source;
  if (!PyArg_ParseTuple(args, "zz:open_chat_template", &directory, &source)) {
    return NULL;
  }
  template_handle *handle = tgi_object_new(state->chat_template);
  if (!handle) {
    return NULL;
  }
  tg_error error = {0};
  tg_status status;
  Py_BEGIN_ALLOW_THREADS status =
      tg_chat_template_load(directory, source, &handle->chat_template, &error);
  Py_END_ALLOW_THREADS if (status != TG_OK)
  {
    tgi_raise_status(status, error.text);
    Py_CLEAR(handle);
  }
  return (PyObject *)handle;
}

static PyObject *list_ranges(const tg_byte_range *ranges, size_t count)
{
  PyObject *list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list && i < count; i++) {
    PyObject *pair = Py_BuildValue("(nn)", (Py_ssize_t)ranges[i].begin, (Py_ssize_t)ranges[i].end);
    if (!pair || PyList_SetItem(list, (Py_ssize_t)i, pair) < 0) {
      Py_CLEAR(list);
    }
  }
  return list;
}

/* render(messages, tools, documents, arguments, name, add_generation_prompt): (text, ranges of it
 * that are untrusted). Texts are JSON. */
static PyObject *render(PyObject *self, PyObject *args)
{
  tg_chat_request request = {.messages = NULL};
  int prompt;
  if (!PyArg_ParseTuple(args, "szzzzp:render", &request.messages, &request.tools,
                        &request.documents, &request.arguments, &request.name, &prompt)) {
    return NULL;
  }
  request.add_generation_prompt = prompt;
  tg_chat_text text;
  tg_error error = {0};
  tg_status status;
  Py_BEGIN_ALLOW_THREADS status =
      tg_chat_template_render(template_in(self), &request, &text, &error);
  Py_END_ALLOW_THREADS if (status != TG_OK)
  {
    tgi_raise_status(status, error.text);
    return NULL;
  }
  PyObject *ranges = list_ranges(text.untrusted, text.num_untrusted);
  PyObject *value =
      ranges ? Py_BuildValue("(s#N)", text.text, (Py_ssize_t)text.size, ranges) : NULL;
  tg_chat_text_release(&text);
  return value;
}

static PyMethodDef methods[] = {
    TGI_METHOD("render", render, METH_VARARGS,
               "render(messages, tools, documents, arguments, name, add_generation_prompt)\n--\n\n"
               "The text of a conversation, and which parts of it are not the operator's."),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, (void *)(uintptr_t)dealloc},
    {Py_tp_methods, methods},
    {Py_tp_doc, "A chat template."},
    {0, NULL},
};

static PyType_Spec spec = {.name = "tegula._runtime.ChatTemplateHandle",
                           .basicsize = sizeof(template_handle),
                           .flags = Py_TPFLAGS_DEFAULT | 1 << 7, /* no instances by calls */
                           .slots = slots};

PyObject *tgi_chat_template_make_type(PyObject *module)
{
  return PyType_FromModuleAndSpec(module, &spec, NULL);
}
