#include "core/device_state.h"

#include "core/environment.h"
#include "core/finite_row.h"
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

static void list_entries(const tgi_chain *chain, char *text, size_t bytes)
{
  size_t used = 0;
  text[0] = 0;
  for (int i = 0; i < chain->length && used < bytes; i++) {
    used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? "|" : "", chain->entry[i]);
  }
}

/* Drops the entries before `entry`. */
static tg_status start_chain_at(tgi_chain *chain, const char *entry, tg_error *error)
{
  for (int first = 0; first < chain->length; first++) {
    if (strcmp(chain->entry[first], entry) == 0) {
      for (int i = first; i < chain->length; i++) {
        chain->table[i - first] = chain->table[i];
        chain->entry[i - first] = chain->entry[i];
      }
      chain->length -= first;
      return TG_OK;
    }
  }
  char known[128];
  list_entries(chain, known, sizeof known);
  return tgi_error_set(error, TG_BAD_ARGUMENT, "context_create: entry: expected %s, got \"%s\"",
                       known, entry);
}

/* The entry asked for, else the one that TEGULA_ENTRY names, if it is one of this backend's: the
 * other backends of the process are not meant by it. */
static tg_status start_chain(tgi_chain *chain, const tg_context_options *options, tg_error *error)
{
  const char *entry = options->entry;
  if (!entry && options->backend != TG_BACKEND_REF) {
    entry = tgi_environment_entry();
    const int owner = entry ? tgi_registry_backend_of(entry) : 0;
    if (owner != 0 && owner != (int)options->backend) {
      entry = NULL;
    }
  }
  return entry ? start_chain_at(chain, entry, error) : TG_OK;
}

tg_status tg_context_create(const tg_context_options *options, tg_context **out, tg_error *error)
{
  if (error) {
    memset(error, 0, sizeof *error);
  }
  if (!out) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "context_create: out: expected a pointer, got NULL");
  }
  *out = NULL;
  if (!options) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "context_create: options: expected a pointer, got NULL");
  }
  if (options->backend < TG_BACKEND_REF || options->backend > TG_BACKEND_CUDA) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "context_create: backend: expected 1 (ref), 2 (cpu) or 3 (cuda), got %d",
                         (int)options->backend);
  }
  if (options->num_threads < 0) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "context_create: num_threads: expected 0 or more, got %d",
                         (int)options->num_threads);
  }
  if (options->device_index != 0 && options->backend != TG_BACKEND_CUDA) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "context_create: device_index: expected 0 for this backend, got %d",
                         (int)options->device_index);
  }
  tgi_device *device = NULL;
  if (options->backend == TG_BACKEND_CUDA) {
    const tg_status status = tgi_device_open(options->device_index, &device, error);
    if (status != TG_OK) {
      return status;
    }
  }
  const tgi_processor processor = tgi_processor_detect();
  tgi_chain chain = tgi_registry_chain(options->backend, &processor, device);
  const tg_status status = start_chain(&chain, options, error);
  if (status != TG_OK) {
    tgi_device_close(device);
    return status;
  }
  tg_context *ctx = calloc(1, sizeof *ctx);
  tgi_message *message = calloc(1, sizeof *message);
  if (!ctx || !message) {
    free(ctx);
    free(message);
    tgi_device_close(device);
    return tgi_error_set(error, TG_NO_MEMORY, "context_create: expected %zu bytes, got none",
                         sizeof *ctx + sizeof *message);
  }
  ctx->backend = options->backend;
  ctx->num_threads = options->num_threads ? options->num_threads : tgi_default_threads();
  ctx->chain = chain;
  ctx->processor = processor;
  ctx->device = device;
  ctx->message = message;
  *out = ctx;
  return TG_OK;
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

tg_status tg_context_check(tg_context *ctx)
{
  if (!ctx || !ctx->device) {
    return ctx ? TG_OK : TG_BAD_ARGUMENT;
  }
  tgi_fault fault = {0};
  int previous;
  tg_status status = tgi_device_enter(ctx, &previous);
  if (status == TG_OK) {
    status = tgi_device_take_fault(ctx, &fault);
  }
  tgi_device_leave(ctx, previous);
  if (status != TG_OK || !fault.set) {
    return status;
  }
  char name[128];
  tgi_registry_name_slot(fault.row, fault.slot, name, sizeof name);
  if (fault.low == TGI_NOT_A_FINITE_ROW) {
    return tgi_report(ctx, TG_BAD_ARGUMENT, "%s[%lld]: " TGI_FINITE_ROW, name,
                      (long long)fault.index);
  }
  return tgi_report(ctx, TG_BAD_ARGUMENT, "%s[%lld]: expected %lld to %lld, got %lld", name,
                    (long long)fault.index, (long long)fault.low, (long long)fault.high,
                    (long long)fault.value);
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
