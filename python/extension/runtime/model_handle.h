/** A model with its sessions. Sessions come from a pool: whoever computes takes an idle one or
 * makes one, so that any number of threads read a model at once. The pool is used under Python's
 * lock. */
#ifndef TGI_PYTHON_MODEL_HANDLE_H
#define TGI_PYTHON_MODEL_HANDLE_H

#include "id_rows.h"
#include "runtime_module.h"

typedef struct tgi_pooled_session {
  tg_session *session;
  bool busy;
  uint64_t epoch; /* of the model when it was made */
  struct tgi_pooled_session *next;
} tgi_pooled_session;

typedef struct tgi_model_handle {
  PyObject ob_base;
  PyObject *module; /* keeps the state */
  tgi_runtime_state *state;
  tg_model *model;
  tg_model_info info;
  tg_backend backend;
  int32_t device_index, num_threads;
  tg_dtype cache_dtype;
  tgi_pooled_session *sessions;
  uint64_t epoch; /* changes with the weights in host memory */
} tgi_model_handle;

/** The device of its sessions, TG_DEVICE_*. */
int32_t tgi_model_device(const tgi_model_handle *handle);

/** An idle session, with an empty timeline that holds `tokens` tokens or, where fewer fit the
 * memory, as many as do. NULL with an exception set on failure. */
tgi_pooled_session *tgi_session_take(tgi_model_handle *handle, int64_t tokens);

void tgi_session_give_back(tgi_pooled_session *pooled);

/** After the weights have changed: sessions on a GPU have copies of the old ones, and go. */
void tgi_model_touch(tgi_model_handle *handle);

void tgi_sessions_free(tgi_model_handle *handle);

/** Reads ids of the model. -1 with an exception set on failure. */
int tgi_model_read_ids(const tgi_model_handle *handle, const char *op, PyObject *object,
                       tgi_id_rows *out);

#endif
