/* Chains of kernel tables, and what a context does with them: it is created with the chain of its
 * backend, and tg_context_check names the op and slot in which a kernel found a data error. */
#include "ops/chain.h"

#include "core/machine/environment.h"
#include "core/values/finite_row.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const tgi_kernel_table tgi_kernel_table_ref;
extern const tgi_kernel_table tgi_kernel_table_generic;
#ifdef TGI_HAVE_X86
extern const tgi_kernel_table tgi_kernel_table_avx2;
extern const tgi_kernel_table tgi_kernel_table_avx512;
#endif

#ifdef TGI_HAVE_ANY
extern const tgi_kernel_table tgi_kernel_table_any;
#endif
#ifdef TGI_HAVE_SM80
extern const tgi_kernel_table tgi_kernel_table_sm80;
#endif
#ifdef TGI_HAVE_SM90
extern const tgi_kernel_table tgi_kernel_table_sm90;
#endif

static void append(tgi_chain *chain, const tgi_kernel_table *table)
{
  chain->table[chain->length] = table;
  chain->entry[chain->length] = table->entry;
  chain->length++;
}

static void append_cpu(tgi_chain *chain, const tgi_processor *processor)
{
#ifdef TGI_HAVE_X86
  if (processor->avx512) {
    append(chain, &tgi_kernel_table_avx512);
  }
  if (processor->avx2) {
    append(chain, &tgi_kernel_table_avx2);
  }
#else
  (void)processor;
#endif
  append(chain, &tgi_kernel_table_generic);
}

static void append_cuda(tgi_chain *chain, const tgi_device *device)
{
#ifdef TGI_HAVE_SM90
  if (device->entries & 1u << TGI_CUDA_SM90) {
    append(chain, &tgi_kernel_table_sm90);
  }
#endif
#ifdef TGI_HAVE_SM80
  if (device->entries & 1u << TGI_CUDA_SM80) {
    append(chain, &tgi_kernel_table_sm80);
  }
#endif
#ifdef TGI_HAVE_ANY
  if (device->entries & 1u << TGI_CUDA_ANY) {
    append(chain, &tgi_kernel_table_any);
  }
#endif
  (void)chain;
  (void)device;
}

tgi_chain tgi_chain_of(tg_backend backend, const tgi_processor *processor, const tgi_device *device)
{
  tgi_chain chain = {.explain = tgi_explain_call};
  if (backend == TG_BACKEND_REF) {
    append(&chain, &tgi_kernel_table_ref);
  } else if (backend == TG_BACKEND_CPU) {
    append_cpu(&chain, processor);
  } else if (backend == TG_BACKEND_CUDA && device) {
    append_cuda(&chain, device);
  }
  return chain;
}

/* The tg_backend whose chains have an entry of this name, on whatever machine; 0: none. */
static int backend_of_entry(const char *entry)
{
  static const struct {
    const char *name;
    tg_backend backend;
  } known[] = {{"ref", TG_BACKEND_REF},     {"avx512", TG_BACKEND_CPU}, {"avx2", TG_BACKEND_CPU},
               {"generic", TG_BACKEND_CPU}, {"sm90", TG_BACKEND_CUDA},  {"sm80", TG_BACKEND_CUDA},
               {"any", TG_BACKEND_CUDA}};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    if (strcmp(known[i].name, entry) == 0) {
      return (int)known[i].backend;
    }
  }
  return 0;
}

/* ---- creating a context ---- */

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
    const int owner = entry ? backend_of_entry(entry) : 0;
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
  tgi_chain chain = tgi_chain_of(options->backend, &processor, device);
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

/* ---- data errors of kernels ---- */

/* Writes "<op>: <argument>" of an entry of the op table and the slot at an offset of its args
 * struct. */
static void name_slot(int row, int offset, char *text, size_t bytes)
{
  const tg_op_info *info = tg_op_at((size_t)row);
  const char *argument = "args";
  for (size_t i = 0; i < info->num_slots; i++) {
    if (info->slots[i].offset == (size_t)offset) {
      argument = info->slots[i].name;
    }
  }
  snprintf(text, bytes, "%s: %s", info->name, argument);
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
  name_slot(fault.row, fault.slot, name, sizeof name);
  if (fault.low == TGI_NOT_A_FINITE_ROW) {
    return tgi_report(ctx, TG_BAD_ARGUMENT, "%s[%lld]: " TGI_FINITE_ROW, name,
                      (long long)fault.index);
  }
  return tgi_report(ctx, TG_BAD_ARGUMENT, "%s[%lld]: expected %lld to %lld, got %lld", name,
                    (long long)fault.index, (long long)fault.low, (long long)fault.high,
                    (long long)fault.value);
}
