/* The code of all kernels at once, instead of each one's when it is first launched. */
#include "cuda/runtime/kernel_loading.h"

#include "core/device_state.h"
#include "cuda/runtime/runtime_status.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The section that every .cu file adds an element to (e.cuh), between names that the
 * linker gives. */
extern const tgi_module __start_tgi_modules[] __attribute__((visibility("hidden")));
extern const tgi_module __stop_tgi_modules[] __attribute__((visibility("hidden")));

size_t tgi_module_count(void)
{
  return ((uintptr_t)__stop_tgi_modules - (uintptr_t)__start_tgi_modules) / sizeof(tgi_module);
}

/* What it takes of the driver, which the library is not linked with. */
typedef struct driver {
  PFN_cuFuncGetModule_v11000 get_module;
  PFN_cuModuleGetFunctionCount_v12040 count;
  PFN_cuModuleEnumerateFunctions_v12040 enumerate;
  PFN_cuFuncIsLoaded_v12040 is_loaded;
  PFN_cuFuncLoad_v12040 load;
} driver;

static tg_status find_function(const tg_context *ctx, const char *name, unsigned version,
                               void *function)
{
  enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t e =
      cudaGetDriverEntryPointByVersion(name, function, version, cudaEnableDefault, &found);
  if (e == cudaSuccess && found != cudaDriverEntryPointSuccess) {
    return tgi_report(ctx, TG_UNSUPPORTED,
                      "context_load_kernels: ctx: expected a driver of CUDA 12.4 or later, got one "
                      "without %s",
                      name);
  }
  return tgi_cuda_check(ctx, name, e);
}

static tg_status find_driver(const tg_context *ctx, driver *d)
{
  const struct {
    const char *name;
    unsigned version;
    void *function;
  } wanted[] = {
      {"cuFuncGetModule", 11000, &d->get_module},
      {"cuModuleGetFunctionCount", 12040, &d->count},
      {"cuModuleEnumerateFunctions", 12040, &d->enumerate},
      {"cuFuncIsLoaded", 12040, &d->is_loaded},
      {"cuFuncLoad", 12040, &d->load},
  };
  tg_status status = TG_OK;
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0] && status == TG_OK; i++) {
    status = find_function(ctx, wanted[i].name, wanted[i].version, wanted[i].function);
  }
  return status;
}

static tg_status check(const tg_context *ctx, const char *what, CUresult r)
{
  return r == CUDA_SUCCESS
             ? TG_OK
             : tgi_report(ctx, r == CUDA_ERROR_OUT_OF_MEMORY ? TG_NO_MEMORY : TG_DEVICE,
                          "%s: expected success, got %d", what, (int)r);
}

static tg_status load_function(const tg_context *ctx, const driver *d, CUfunction function,
                               int64_t *loaded)
{
  CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_UNLOADED;
  tg_status status = check(ctx, "cuFuncIsLoaded", d->is_loaded(&state, function));
  if (status == TG_OK && state != CU_FUNCTION_LOADING_STATE_LOADED) {
    status = check(ctx, "cuFuncLoad", d->load(function));
    *loaded += status == TG_OK;
  }
  return status;
}

static tg_status load_module(const tg_context *ctx, const driver *d, CUmodule module,
                             int64_t *found, int64_t *loaded)
{
  unsigned count = 0;
  tg_status status = check(ctx, "cuModuleGetFunctionCount", d->count(&count, module));
  CUfunction *functions = status == TG_OK ? calloc((size_t)count + 1, sizeof *functions) : NULL;
  if (status == TG_OK && !functions) {
    status = tgi_report(ctx, TG_NO_MEMORY,
                        "context_load_kernels: expected memory for a list of %u kernels, got none",
                        count);
  }
  if (status == TG_OK) {
    status = check(ctx, "cuModuleEnumerateFunctions", d->enumerate(functions, count, module));
  }
  for (unsigned i = 0; i < count && status == TG_OK; i++) {
    status = load_function(ctx, d, functions[i], loaded);
  }
  *found += status == TG_OK ? count : 0;
  free(functions);
  return status;
}

/* Whether calls can come to a module's kernels. What stands behind sm80 in the chain is for tests:
 * in builds with PTX the driver would compile all of it first. */
static bool is_used(const tg_context *ctx, const tgi_module *module)
{
  const tgi_chain *chain = &ctx->chain;
  bool used = strcmp(module->entry, "all") == 0;
  for (int i = 0; i < chain->length && !used; i++) {
    used = strcmp(module->entry, chain->entry[i]) == 0;
    if (strcmp(chain->entry[i], "sm80") == 0) {
      break;
    }
  }
  return used;
}

tg_status tgi_device_load_kernels(const tg_context *ctx, int64_t *found, int64_t *loaded)
{
  driver d;
  tg_status status = find_driver(ctx, &d);
  const size_t count = tgi_module_count();
  for (size_t i = 0; i < count && status == TG_OK; i++) {
    const tgi_module *m = &__start_tgi_modules[i];
    CUfunction kernel = NULL;
    CUmodule module = NULL;
    if (!is_used(ctx, m)) {
      continue;
    }
    status = tgi_cuda_check(ctx, "cudaGetFuncBySymbol", cudaGetFuncBySymbol(&kernel, m->kernel));
    if (status == TG_OK) {
      status = check(ctx, "cuFuncGetModule", d.get_module(&module, kernel));
    }
    if (status == TG_OK) {
      status = load_module(ctx, &d, module, found, loaded);
    }
  }
  return status;
}
