#include "token_list.h"

#include "core/machine/clock.h"

#include <stdlib.h>

/* Between two looks for an interrupt from the keyboard. */
#define PATIENCE 0.05

static bool make_room(tgi_token_list *list, bool logprobs)
{
  if (list->count < list->room) {
    return true;
  }
  const int64_t room = list->room ? 2 * list->room : 256;
  int32_t *ids = realloc(list->ids, (size_t)room * sizeof *ids);
  list->ids = ids ? ids : list->ids;
  tg_token_logprobs *more =
      ids && logprobs ? realloc(list->logprobs, (size_t)room * sizeof *more) : NULL;
  list->logprobs = more ? more : list->logprobs;
  if (!ids || (logprobs && !more)) {
    return false;
  }
  list->room = room;
  return true;
}

bool tgi_token_list_add(tgi_token_list *list, int32_t id, const tg_token_logprobs *logprobs)
{
  if (!make_room(list, logprobs != NULL)) {
    return false;
  }
  if (logprobs) {
    list->logprobs[list->count] = *logprobs;
  }
  list->ids[list->count++] = id;
  return true;
}

void tgi_token_list_free(tgi_token_list *list)
{
  free(list->ids);
  free(list->logprobs);
  *list = (tgi_token_list){.ids = NULL};
}

static PyObject *list_logprobs(const tgi_token_list *tokens)
{
  PyObject *list = PyList_New((Py_ssize_t)tokens->count);
  for (int64_t i = 0; list && i < tokens->count; i++) {
    PyObject *of_token = tgi_logprobs_object(tokens->ids[i], &tokens->logprobs[i]);
    if (!of_token || PyList_SetItem(list, (Py_ssize_t)i, of_token) < 0) {
      Py_CLEAR(list);
    }
  }
  return list;
}

PyObject *tgi_token_list_object(const tgi_token_list *list, bool wants_logprobs, const char *reason,
                                double prompt, double tokens)
{
  PyObject *ids = tgi_ids_object(list->ids, list->count);
  PyObject *logprobs = wants_logprobs ? list_logprobs(list) : Py_NewRef(Py_None);
  if (!ids || !logprobs) {
    Py_XDECREF(ids);
    Py_XDECREF(logprobs);
    return NULL;
  }
  return Py_BuildValue("(NsNdd)", ids, reason, logprobs, prompt, tokens);
}

bool tgi_is_interrupted(double *looked, PyThreadState **python)
{
  const double now = tgi_clock();
  if (now - *looked < PATIENCE) {
    return false;
  }
  *looked = now;
  PyEval_RestoreThread(*python);
  const bool interrupted = PyErr_CheckSignals() < 0;
  *python = PyEval_SaveThread();
  return interrupted;
}
