#include "model_handle.h"

#include "status_exception.h"

#include <stdlib.h>

enum { kLeastTokens = 256 };

int32_t tgi_model_device(const tgi_model_handle *handle)
{
  return handle->backend == TG_BACKEND_CUDA ? TG_DEVICE_CUDA(handle->device_index) : TG_DEVICE_CPU;
}

/* On a CPU the cache grows with the timeline, so that every session may become as long as the
 * model. On a GPU it is allocated at once: for the next power of two. */
static int32_t capacity_for(const tgi_model_handle *handle, int64_t tokens)
{
  const int32_t most = handle->info.max_position_embeddings;
  int64_t capacity = kLeastTokens;
  while (capacity < tokens) {
    capacity *= 2;
  }
  return handle->backend != TG_BACKEND_CUDA ? 0 : capacity < most ? (int32_t)capacity : most;
}

static bool is_stale(const tgi_model_handle *handle, const tgi_pooled_session *pooled)
{
  return handle->backend == TG_BACKEND_CUDA && pooled->epoch != handle->epoch;
}

/* Idle sessions with old weights go. */
static void drop_stale(tgi_model_handle *handle)
{
  for (tgi_pooled_session **at = &handle->sessions; *at;) {
    tgi_pooled_session *pooled = *at;
    if (pooled->busy || !is_stale(handle, pooled)) {
      at = &pooled->next;
      continue;
    }
    *at = pooled->next;
    tg_session_destroy(pooled->session);
    free(pooled);
  }
}

static tgi_pooled_session *make(tgi_model_handle *handle, int64_t tokens)
{
  const tg_session_options options = {.max_tokens = capacity_for(handle, tokens),
                                      .num_threads = handle->num_threads,
                                      .backend = handle->backend,
                                      .device_index = handle->device_index,
                                      .cache_dtype = handle->cache_dtype};
  tgi_pooled_session *pooled = calloc(1, sizeof *pooled);
  if (!pooled) {
    PyErr_NoMemory();
    return NULL;
  }
  pooled->busy = true;
  pooled->epoch = handle->epoch;
  tg_error error = {0};
  tg_status status;
  Py_BEGIN_ALLOW_THREADS status =
      tg_session_create(handle->model, &options, &pooled->session, &error);
  Py_END_ALLOW_THREADS if (status != TG_OK)
  {
    free(pooled);
    tgi_raise_status(status, error.text);
    return NULL;
  }
  pooled->next = handle->sessions;
  handle->sessions = pooled;
  return pooled;
}

tgi_pooled_session *tgi_session_take(tgi_model_handle *handle, int64_t tokens)
{
  drop_stale(handle);
  for (tgi_pooled_session *p = handle->sessions; p; p = p->next) {
    if (!p->busy && !is_stale(handle, p) &&
        (handle->backend != TG_BACKEND_CUDA || tg_session_capacity(p->session) >= tokens)) {
      p->busy = true;
      return p;
    }
  }
  return make(handle, tokens);
}

void tgi_session_give_back(tgi_pooled_session *pooled)
{
  (void)tg_session_truncate(pooled->session, 0); /* 0 is within any timeline */
  pooled->busy = false;
}

void tgi_model_touch(tgi_model_handle *handle)
{
  handle->epoch++;
  drop_stale(handle);
}

void tgi_sessions_free(tgi_model_handle *handle)
{
  while (handle->sessions) {
    tgi_pooled_session *pooled = handle->sessions;
    handle->sessions = pooled->next;
    tg_session_destroy(pooled->session);
    free(pooled);
  }
}
