/** The tokens of a generation while they come, and what Python receives of them. */
#ifndef TGI_PYTHON_TOKEN_LIST_H
#define TGI_PYTHON_TOKEN_LIST_H

#include "generation_settings.h"

typedef struct tgi_token_list {
  int32_t *ids;                /* [count] */
  tg_token_logprobs *logprobs; /* [count]; NULL: not wanted */
  int64_t count, room;
} tgi_token_list;

/** Adds a token, with a copy of `logprobs` unless that is NULL; needs no lock of Python's. False
 * where memory ran out. */
bool tgi_token_list_add(tgi_token_list *list, int32_t id, const tg_token_logprobs *logprobs);

void tgi_token_list_free(tgi_token_list *list);

/** (ids, finish reason, log-probabilities or None, seconds of the prompt, of the tokens). */
PyObject *tgi_token_list_object(const tgi_token_list *list, bool wants_logprobs, const char *reason,
                                double prompt, double tokens);

/** Whether a signal's handler raised, the keyboard's say. Takes Python's lock back for the look, at
 * most every 50 ms: *looked is when it did last, *python what the lock was given up with. */
bool tgi_is_interrupted(double *looked, PyThreadState **python);

#endif
