#include "core/device_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tg_version(void)
{
  return TEGULA_VERSION;
}

tg_status tgi_report(const tg_context *ctx, tg_status status, const char *format, ...)
{
  va_list args;
  va_start(args, format);
  vsnprintf(ctx->message->text, sizeof ctx->message->text, format, args);
  va_end(args);
  return status;
}

bool tgi_exceeds_cache(const tg_context *ctx, size_t bytes)
{
  /* Half of the last level: the other half holds what the op reads. */
  const size_t l3 = ctx->processor.l3_bytes;
  const size_t last = l3 ? l3 : ctx->processor.l2_bytes * (size_t)ctx->num_threads;
  return bytes > last / 2;
}

void tg_context_destroy(tg_context *ctx)
{
  if (ctx) {
    tgi_device_close(ctx->device);
    free(ctx->message);
    free(ctx);
  }
}

tg_status tg_context_prepare(tg_context *ctx)
{
  if (!ctx || !ctx->device) {
    return ctx ? TG_OK : TG_BAD_ARGUMENT;
  }
  int previous;
  tg_status status = tgi_device_enter(ctx, &previous);
  if (status == TG_OK) {
    status = tgi_device_prepare(ctx);
  }
  tgi_device_leave(ctx, previous);
  return status;
}

tg_status tg_context_load_kernels(tg_context *ctx, int64_t *found, int64_t *loaded)
{
  int64_t all = 0, late = 0;
  tg_status status = ctx ? TG_OK : TG_BAD_ARGUMENT;
  if (ctx && ctx->device) {
    int previous;
    status = tgi_device_enter(ctx, &previous);
    if (status == TG_OK) {
      status = tgi_device_load_kernels(ctx, &all, &late);
    }
    tgi_device_leave(ctx, previous);
  }
  if (found) {
    *found = all;
  }
  if (loaded) {
    *loaded = late;
  }
  return status;
}

tg_status tg_context_set_stream(tg_context *ctx, void *stream)
{
  if (!ctx) {
    return TG_BAD_ARGUMENT;
  }
  if (ctx->device) {
    ctx->device->stream = stream;
    return TG_OK;
  }
  if (stream) {
    return tgi_report(ctx, TG_BAD_ARGUMENT,
                      "context_set_stream: stream: expected NULL on a CPU context, got %p", stream);
  }
  return TG_OK;
}

tg_status tg_context_allow_overlap(tg_context *ctx, bool allow)
{
  if (ctx && ctx->device) {
    ctx->device->overlaps = allow;
  }
  return ctx ? TG_OK : TG_BAD_ARGUMENT;
}

tg_status tg_context_set_num_threads(tg_context *ctx, int32_t num_threads)
{
  if (!ctx) {
    return TG_BAD_ARGUMENT;
  }
  if (num_threads < 0) {
    return tgi_report(ctx, TG_BAD_ARGUMENT,
                      "context_set_num_threads: num_threads: expected 0 or more, got %d",
                      (int)num_threads);
  }
  ctx->num_threads = num_threads ? num_threads : tgi_default_threads();
  return TG_OK;
}

const char *tg_context_message(const tg_context *ctx)
{
  return ctx ? ctx->message->text : "";
}

const char *tg_context_entry(const tg_context *ctx)
{
  return ctx ? ctx->chain.entry[0] : "";
}

int32_t tg_context_num_threads(const tg_context *ctx)
{
  return ctx ? ctx->num_threads : 0;
}
