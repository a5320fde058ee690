#include "core/device_state.h"

#include <stdlib.h>
#include <string.h>

enum { kAlignment = 256 };

tg_status tg_memory_allocate(tg_context *ctx, size_t bytes, void **out)
{
  if (!ctx || !out) {
    return TG_BAD_ARGUMENT;
  }
  *out = NULL;
  if (ctx->device) {
    int previous;
    tg_status status = tgi_device_enter(ctx, &previous);
    if (status == TG_OK) {
      status = tgi_device_allocate(ctx, bytes, out);
    }
    tgi_device_leave(ctx, previous);
    return status;
  }
  if (bytes > 0) {
    const bool fits = bytes <= SIZE_MAX - kAlignment;
    *out =
        fits ? aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment) : NULL;
  }
  return *out || bytes == 0
             ? TG_OK
             : tgi_report(ctx, TG_NO_MEMORY, "memory: expected %zu bytes, got none", bytes);
}

void tg_memory_free(tg_context *ctx, void *memory)
{
  if (!ctx || !memory) {
    return;
  }
  if (ctx->device) {
    int previous;
    if (tgi_device_enter(ctx, &previous) == TG_OK) {
      tgi_device_free(ctx, memory);
    }
    tgi_device_leave(ctx, previous);
  } else {
    free(memory);
  }
}

static tg_status check_copy(const tg_context *ctx, const void *to, size_t to_step, const void *from,
                            size_t from_step, size_t bytes, size_t rows)
{
  if (!to || !from) {
    return tgi_report(ctx, TG_BAD_ARGUMENT, "memory_copy: %s: expected memory, got NULL",
                      to ? "from" : "to");
  }
  if (rows > 1 && (to_step < bytes || from_step < bytes)) {
    return tgi_report(ctx, TG_BAD_ARGUMENT, "memory_copy: %s: expected %zu bytes or more, got %zu",
                      to_step < bytes ? "to_step" : "from_step", bytes,
                      to_step < bytes ? to_step : from_step);
  }
  return TG_OK;
}

tg_status tg_memory_copy(tg_context *ctx, void *to, size_t to_step, const void *from,
                         size_t from_step, size_t bytes, size_t rows)
{
  if (!ctx || bytes == 0 || rows == 0) {
    return ctx ? TG_OK : TG_BAD_ARGUMENT;
  }
  tg_status status = check_copy(ctx, to, to_step, from, from_step, bytes, rows);
  if (status != TG_OK) {
    return status;
  }
  if (ctx->device) {
    int previous;
    status = tgi_device_enter(ctx, &previous);
    if (status == TG_OK) {
      status = tgi_device_copy(ctx, to, to_step, from, from_step, bytes, rows);
    }
    tgi_device_leave(ctx, previous);
    return status;
  }
  for (size_t i = 0; i < rows; i++) {
    memcpy((char *)to + i * to_step, (const char *)from + i * from_step, bytes);
  }
  return TG_OK;
}

tg_status tg_memory_zero(tg_context *ctx, void *memory, size_t bytes)
{
  if (!ctx || bytes == 0) {
    return ctx ? TG_OK : TG_BAD_ARGUMENT;
  }
  if (!memory) {
    return tgi_report(ctx, TG_BAD_ARGUMENT, "memory_zero: memory: expected %zu bytes, got NULL",
                      bytes);
  }
  if (ctx->device) {
    int previous;
    tg_status status = tgi_device_enter(ctx, &previous);
    if (status == TG_OK) {
      status = tgi_device_zero(ctx, memory, bytes);
    }
    tgi_device_leave(ctx, previous);
    return status;
  }
  memset(memory, 0, bytes);
  return TG_OK;
}
