#include "core/device_state.h"

#include "core/tensor_view.h"
#include "core/values/convert.h"
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
      status = tgi_device_take(ctx, bytes, out);
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
      tgi_device_give_back(ctx, memory);
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

/* Checks a view of tg_memory_put against its dtype and shape. */
static tg_status check_view(const tg_context *ctx, const char *argument, const tg_tensor *t,
                            tg_dtype dtype, int ndim, const int64_t *shape)
{
  if (t->dtype != dtype || tg_dtype_bytes(t->dtype) == 0) {
    return tgi_report(ctx, TG_BAD_DTYPE, "memory_put: %s: expected %s, got %s", argument,
                      tg_dtype_bytes(dtype) ? tg_dtype_name(dtype) : "a dtype",
                      tg_dtype_name(t->dtype));
  }
  if (t->ndim != ndim) {
    return tgi_report(ctx, TG_BAD_SHAPE, "memory_put: %s: expected %d axes, got %d", argument, ndim,
                      (int)t->ndim);
  }
  bool empty = false;
  for (int i = 0; i < ndim; i++) {
    empty = empty || shape[i] == 0;
    if (t->shape[i] != shape[i] || shape[i] < 0) {
      return tgi_report(ctx, TG_BAD_SHAPE, "memory_put: %s: axis %d: expected %lld, got %lld",
                        argument, i, (long long)(shape[i] < 0 ? 0 : shape[i]),
                        (long long)t->shape[i]);
    }
    if (tgi_stride(t, i) < 0 || (i == ndim - 1 && shape[i] > 1 && tgi_stride(t, i) != 1)) {
      return tgi_report(ctx, TG_BAD_ARGUMENT,
                        "memory_put: %s: axis %d: expected stride %s, got %lld", argument, i,
                        i == ndim - 1 ? "1" : ">= 0", (long long)tgi_stride(t, i));
    }
  }
  return t->data || empty ? TG_OK
                          : tgi_report(ctx, TG_BAD_ARGUMENT,
                                       "memory_put: %s: expected memory, got NULL", argument);
}

tg_status tg_memory_put(tg_context *ctx, tg_tensor to, tg_tensor from, tg_tensor index)
{
  if (!ctx) {
    return TG_BAD_ARGUMENT;
  }
  const int64_t rows = to.shape[0], cols = to.shape[2];
  tg_status status = check_view(ctx, "to", &to, to.dtype, 3, to.shape);
  if (status == TG_OK) {
    status = check_view(ctx, "from", &from, to.dtype, 2, (const int64_t[]){rows, cols});
  }
  if (status == TG_OK) {
    const int64_t places = index.shape[0] == rows ? rows : 1;
    status = check_view(ctx, "index", &index, TG_I32, 1, &places);
  }
  if (status != TG_OK || rows == 0 || to.shape[1] == 0 || cols == 0) {
    return status;
  }
  if (ctx->device) {
    int previous;
    status = tgi_device_enter(ctx, &previous);
    if (status == TG_OK) {
      status = tgi_device_put(ctx, &to, &from, &index);
    }
    tgi_device_leave(ctx, previous);
    return status;
  }
  const int32_t *places = index.data;
  const int64_t element = (int64_t)tg_dtype_bytes(to.dtype), step = index.shape[0] > 1;
  for (int64_t r = 0; r < rows; r++) {
    const int64_t place = places[r * step];
    if (place < 0 || place >= to.shape[1]) {
      continue;
    }
    const int64_t at = r * tgi_stride(&to, 0) + place * tgi_stride(&to, 1);
    memcpy((char *)to.data + at * element,
           (const char *)from.data + r * tgi_stride(&from, 0) * element, (size_t)(cols * element));
  }
  return TG_OK;
}

/* Checks a view of tg_memory_convert against the shape of `to`. */
static tg_status check_converted(const tg_context *ctx, const char *argument, const tg_tensor *t,
                                 const int64_t *shape)
{
  if (t->dtype != TG_F32 && t->dtype != TG_F16 && t->dtype != TG_BF16) {
    return tgi_report(ctx, TG_BAD_DTYPE, "memory_convert: %s: expected f32|f16|bf16, got %s",
                      argument, tg_dtype_name(t->dtype));
  }
  if (t->ndim != 2) {
    return tgi_report(ctx, TG_BAD_SHAPE, "memory_convert: %s: expected 2 axes, got %d", argument,
                      (int)t->ndim);
  }
  for (int i = 0; i < 2; i++) {
    if (t->shape[i] != shape[i] || shape[i] < 0) {
      return tgi_report(ctx, TG_BAD_SHAPE, "memory_convert: %s: axis %d: expected %lld, got %lld",
                        argument, i, (long long)(shape[i] < 0 ? 0 : shape[i]),
                        (long long)t->shape[i]);
    }
    if (tgi_stride(t, i) < 0) {
      return tgi_report(ctx, TG_BAD_ARGUMENT,
                        "memory_convert: %s: axis %d: expected stride >= 0, got %lld", argument, i,
                        (long long)tgi_stride(t, i));
    }
  }
  return t->data || shape[0] == 0 || shape[1] == 0
             ? TG_OK
             : tgi_report(ctx, TG_BAD_ARGUMENT, "memory_convert: %s: expected memory, got NULL",
                          argument);
}

tg_status tg_memory_convert(tg_context *ctx, tg_tensor to, tg_tensor from)
{
  if (!ctx) {
    return TG_BAD_ARGUMENT;
  }
  tg_status status = check_converted(ctx, "to", &to, to.shape);
  if (status == TG_OK) {
    status = check_converted(ctx, "from", &from, to.shape);
  }
  if (status != TG_OK || to.shape[0] == 0 || to.shape[1] == 0) {
    return status;
  }
  if (!ctx->device) {
    tgi_convert(ctx, &to, &from);
    return TG_OK;
  }
  int previous;
  status = tgi_device_enter(ctx, &previous);
  if (status == TG_OK) {
    status = tgi_device_convert(ctx, &to, &from);
  }
  tgi_device_leave(ctx, previous);
  return status;
}
