/* Arrays on a GPU, for libraries that have no way to give memory that others write to, as JAX. */
#include "array_memory.h"
#include "context_pool.h"
#include "status_exception.h"

#include <stdio.h>

/* A context of the pool is the default stream's, on which ops run that were given no stream. */
static tgi_pooled_context *take(int32_t device_index, tg_error *error)
{
  return tgi_context_take(TG_BACKEND_CUDA, device_index, NULL, 0, error);
}

static void release(void *bytes, int32_t device_index)
{
  tg_error error = {0};
  tgi_pooled_context *c = take(device_index, &error);
  if (c) { /* else the device has failed */
    tg_memory_free(c->ctx, bytes);
    tgi_context_give_back(c);
  }
}

static tg_status give_back(tgi_pooled_context *c, tg_status status, tg_error *error)
{
  if (status != TG_OK) {
    error->status = status;
    snprintf(error->text, sizeof error->text, "%s", tg_context_message(c->ctx));
  }
  tgi_context_give_back(c);
  return status;
}

/* Also reports what the kernels found, such as an id out of range. */
static tg_status wait_for_writers(int32_t device_index, tg_error *error)
{
  tgi_pooled_context *c = take(device_index, error);
  return c ? give_back(c, tg_context_check(c->ctx), error) : error->status;
}

static const tgi_memory_kind gpu_memory = {.release = release, .wait = wait_for_writers};

static tg_status allocate(int32_t device_index, size_t bytes, bool zero, void **out,
                          tg_error *error)
{
  tgi_pooled_context *c = take(device_index, error);
  if (!c) {
    return error->status;
  }
  tg_status status = tg_memory_allocate(c->ctx, bytes ? bytes : 1, out);
  if (status == TG_OK && zero) {
    status = tg_memory_zero(c->ctx, *out, bytes);
  }
  return give_back(c, status, error);
}

PyObject *tgi_array_new_on_gpu(PyObject *type, tg_dtype dtype, int ndim, const int64_t *shape,
                               int32_t device_index, bool zero)
{
  size_t bytes;
  void *memory = NULL;
  tg_error error = {0};
  if (tgi_array_bytes(dtype, ndim, shape, &bytes) < 0) {
    return NULL;
  }
  tg_status status;
  Py_BEGIN_ALLOW_THREADS status = allocate(device_index, bytes, zero, &memory, &error);
  Py_END_ALLOW_THREADS if (status != TG_OK)
  {
    tgi_raise_status(status, error.text);
    return NULL;
  }
  tg_tensor view = tg_tensor_view(memory, dtype, ndim, shape);
  view.device = TG_DEVICE_CUDA(device_index);
  return tgi_array_own(type, &view, memory, &gpu_memory, device_index);
}
