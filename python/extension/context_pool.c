#include "context_pool.h"

#include <stdio.h>
#include <stdlib.h>

/* Contexts belong to the process and hold no Python object. They are never destroyed: at the end of
 * the process the GPU's driver may already be unloaded. */
static _Atomic(tgi_pooled_context *) all; /* only grows, at its head */
static atomic_bool overlap_allowed;

static bool claim(tgi_pooled_context *c)
{
  return !atomic_load_explicit(&c->busy, memory_order_relaxed) &&
         !atomic_exchange_explicit(&c->busy, true, memory_order_acquire);
}

static tgi_pooled_context *take_idle(tg_backend backend, int32_t device_index, const void *stream)
{
  tgi_pooled_context *c = atomic_load_explicit(&all, memory_order_acquire);
  while (c && (c->backend != backend || c->device_index != device_index || c->stream != stream ||
               !claim(c))) {
    c = c->next;
  }
  return c;
}

static tg_status copy_message(tg_status status, const tg_context *ctx, tg_error *error)
{
  if (status != TG_OK) {
    error->status = status;
    snprintf(error->text, sizeof error->text, "%s", tg_context_message(ctx));
  }
  return status;
}

static tgi_pooled_context *create(tg_backend backend, int32_t device_index, void *stream,
                                  tg_error *error)
{
  tgi_pooled_context *c = calloc(1, sizeof *c);
  if (!c) {
    error->status = TG_NO_MEMORY;
    snprintf(error->text, sizeof error->text, "context: expected %zu bytes, got none", sizeof *c);
    return NULL;
  }
  const tg_context_options options = {.backend = backend, .device_index = device_index};
  if (tg_context_create(&options, &c->ctx, error) != TG_OK ||
      copy_message(tg_context_set_stream(c->ctx, stream), c->ctx, error) != TG_OK ||
      copy_message(tg_context_prepare(c->ctx), c->ctx, error) != TG_OK) {
    tg_context_destroy(c->ctx);
    free(c);
    return NULL;
  }
  c->backend = backend;
  c->device_index = device_index;
  c->stream = stream;
  atomic_init(&c->busy, true);
  return c;
}

/* Creates one and adds it to the pool. */
static tgi_pooled_context *add(tg_backend backend, int32_t device_index, void *stream,
                               tg_error *error)
{
  tgi_pooled_context *c = create(backend, device_index, stream, error);
  if (c) {
    c->next = atomic_load_explicit(&all, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&all, &c->next, c, memory_order_release,
                                                  memory_order_relaxed)) {
    }
  }
  return c;
}

tgi_pooled_context *tgi_context_take(tg_backend backend, int32_t device_index, void *stream,
                                     int32_t num_threads, tg_error *error)
{
  tgi_pooled_context *c = take_idle(backend, device_index, stream);
  if (!c) {
    c = add(backend, device_index, stream, error);
  }
  if (c && c->num_threads != num_threads) {
    if (copy_message(tg_context_set_num_threads(c->ctx, num_threads), c->ctx, error) != TG_OK) {
      tgi_context_give_back(c);
      return NULL;
    }
    c->num_threads = num_threads;
  }
  const bool overlaps = atomic_load_explicit(&overlap_allowed, memory_order_relaxed);
  if (c && c->overlaps != overlaps) {
    tg_context_allow_overlap(c->ctx, overlaps); /* fails without a context alone */
    c->overlaps = overlaps;
  }
  return c;
}

bool tgi_context_allow_overlap(bool allow)
{
  return atomic_exchange_explicit(&overlap_allowed, allow, memory_order_relaxed);
}

void tgi_context_give_back(tgi_pooled_context *context)
{
  atomic_store_explicit(&context->busy, false, memory_order_release);
}

tg_status tgi_context_check_all(tg_error *error)
{
  tg_status status = TG_OK;
  tgi_pooled_context *c = atomic_load_explicit(&all, memory_order_acquire);
  for (; c && status == TG_OK; c = c->next) {
    if (claim(c)) {
      status = copy_message(tg_context_check(c->ctx), c->ctx, error);
      tgi_context_give_back(c);
    }
  }
  return status;
}

tg_status tgi_context_load_kernels(int32_t device_index, int64_t *found, int64_t *loaded,
                                   tg_error *error)
{
  tgi_pooled_context *c = tgi_context_take(TG_BACKEND_CUDA, device_index, NULL, 0, error);
  if (!c) {
    return error->status;
  }
  const tg_status status =
      copy_message(tg_context_load_kernels(c->ctx, found, loaded), c->ctx, error);
  tgi_context_give_back(c);
  return status;
}

tg_status tgi_context_tune(int32_t device_index, void *stream, bool begins, int64_t *measured,
                           tg_error *error)
{
  tgi_pooled_context *c = tgi_context_take(TG_BACKEND_CUDA, device_index, stream, 0, error);
  if (!c) {
    return error->status;
  }
  *measured = 0;
  const tg_status status =
      copy_message(begins ? tg_tune_begin(c->ctx) : tg_tune_end(c->ctx, measured), c->ctx, error);
  tgi_context_give_back(c);
  return status;
}
