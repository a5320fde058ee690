/* Asynchronous fetches of a few bytes. Without a GPU they are plain copies. */
#include "core/device_state.h"

#include <stdlib.h>
#include <string.h>

struct tg_fetch {
  size_t bytes;
  bool started;
  void *memory; /* pinned on a GPU's context */
  void *event;  /* NULL without a GPU */
};

static tg_status open_fetch(const tg_context *ctx, tg_fetch *f)
{
  if (!ctx->device) {
    f->memory = malloc(f->bytes);
    return f->memory ? TG_OK
                     : tgi_report(ctx, TG_NO_MEMORY, "fetch_create: expected %zu bytes, got none",
                                  f->bytes);
  }
  int previous;
  tg_status status = tgi_device_enter(ctx, &previous);
  if (status == TG_OK) {
    status = tgi_device_fetch_open(ctx, f->bytes, &f->memory, &f->event);
  }
  tgi_device_leave(ctx, previous);
  return status;
}

tg_status tg_fetch_create(tg_context *ctx, size_t bytes, tg_fetch **out)
{
  if (!ctx || !out) {
    return TG_BAD_ARGUMENT;
  }
  *out = NULL;
  if (bytes == 0) {
    return tgi_report(ctx, TG_BAD_ARGUMENT, "fetch_create: bytes: expected 1 or more, got 0");
  }
  tg_fetch *f = calloc(1, sizeof *f);
  if (!f) {
    return tgi_report(ctx, TG_NO_MEMORY, "fetch_create: expected %zu bytes, got none", sizeof *f);
  }
  f->bytes = bytes;
  const tg_status status = open_fetch(ctx, f);
  if (status != TG_OK) {
    free(f);
    return status;
  }
  *out = f;
  return TG_OK;
}

void tg_fetch_destroy(tg_context *ctx, tg_fetch *f)
{
  if (!ctx || !f) {
    return;
  }
  if (ctx->device) {
    int previous;
    if (tgi_device_enter(ctx, &previous) == TG_OK && f->started) {
      (void)tgi_device_fetch_wait(ctx, f->event); /* destroy has no status to return */
    }
    tgi_device_fetch_close(f->memory, f->event);
    tgi_device_leave(ctx, previous);
  } else {
    free(f->memory);
  }
  free(f);
}

tg_status tg_fetch_start(tg_context *ctx, tg_fetch *f, const void *from)
{
  if (!ctx || !f || !from) {
    return ctx ? tgi_report(ctx, TG_BAD_ARGUMENT, "fetch_start: %s: expected a pointer, got NULL",
                            f ? "from" : "fetch")
               : TG_BAD_ARGUMENT;
  }
  f->started = true;
  if (!ctx->device) {
    memcpy(f->memory, from, f->bytes);
    return TG_OK;
  }
  int previous;
  tg_status status = tgi_device_enter(ctx, &previous);
  if (status == TG_OK) {
    status = tgi_device_fetch_start(ctx, f->memory, from, f->bytes, f->event);
  }
  tgi_device_leave(ctx, previous);
  return status;
}

tg_status tg_fetch_wait(tg_context *ctx, tg_fetch *f, void *to)
{
  if (!ctx || !f || !to) {
    return ctx ? tgi_report(ctx, TG_BAD_ARGUMENT, "fetch_wait: %s: expected a pointer, got NULL",
                            f ? "to" : "fetch")
               : TG_BAD_ARGUMENT;
  }
  if (!f->started) {
    return tgi_report(ctx, TG_BAD_ARGUMENT,
                      "fetch_wait: fetch: expected one that was started, got one that was not");
  }
  tg_status status = TG_OK;
  if (ctx->device) {
    int previous;
    status = tgi_device_enter(ctx, &previous);
    if (status == TG_OK) {
      status = tgi_device_fetch_wait(ctx, f->event);
    }
    tgi_device_leave(ctx, previous);
  }
  if (status == TG_OK) {
    memcpy(to, f->memory, f->bytes);
  }
  return status;
}
