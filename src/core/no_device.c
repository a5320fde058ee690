/* A build without CUDA: opening a device fails, so the other functions are never called. */
#include "core/device_state.h"

tg_status tgi_device_open(int index, tgi_device **out, tg_error *error)
{
  (void)index;
  *out = NULL;
  return tgi_error_set(error, TG_UNSUPPORTED,
                       "context_create: backend: expected one that this build has (ref, cpu), got "
                       "cuda");
}

void tgi_device_close(tgi_device *device)
{
  (void)device;
}

tg_status tgi_device_prepare(const tg_context *ctx)
{
  (void)ctx;
  return TG_OK;
}

tg_status tgi_device_tune_begin(const tg_context *ctx)
{
  (void)ctx;
  return TG_OK;
}

tg_status tgi_device_tune_end(const tg_context *ctx, int64_t *measured)
{
  (void)ctx;
  *measured = 0;
  return TG_OK;
}

tg_status tgi_device_load_kernels(const tg_context *ctx, int64_t *found, int64_t *loaded)
{
  (void)ctx;
  *found = *loaded = 0;
  return TG_OK;
}

int tgi_device_count(void)
{
  return 0;
}

tg_status tgi_device_describe(int index, tg_device_info *out, unsigned *entries, tg_error *error)
{
  (void)out;
  *entries = 0;
  return tgi_error_set(error, TG_UNSUPPORTED,
                       "device_get_info: index: expected a build with CUDA, got one without for %d",
                       index);
}

tg_status tgi_device_enter(const tg_context *ctx, int *previous)
{
  (void)ctx;
  *previous = 0;
  return TG_OK;
}

void tgi_device_leave(const tg_context *ctx, int previous)
{
  (void)ctx;
  (void)previous;
}

static tg_status nothing(const tg_context *ctx)
{
  return tgi_report(ctx, TG_UNSUPPORTED, "device: expected a build with CUDA, got one without");
}

tg_status tgi_device_wait(const tg_context *ctx)
{
  return nothing(ctx);
}

tg_status tgi_device_take_fault(const tg_context *ctx, tgi_fault *fault)
{
  (void)fault;
  return nothing(ctx);
}

tg_status tgi_device_allocate(const tg_context *ctx, size_t bytes, void **out)
{
  (void)bytes;
  *out = NULL;
  return nothing(ctx);
}

void tgi_device_free(const tg_context *ctx, void *memory)
{
  (void)ctx;
  (void)memory;
}

tg_status tgi_device_take(const tg_context *ctx, size_t bytes, void **out)
{
  return tgi_device_allocate(ctx, bytes, out);
}

void tgi_device_give_back(const tg_context *ctx, void *memory)
{
  tgi_device_free(ctx, memory);
}

tg_status tgi_device_copy(const tg_context *ctx, void *to, size_t to_step, const void *from,
                          size_t from_step, size_t bytes, size_t rows)
{
  (void)to;
  (void)to_step;
  (void)from;
  (void)from_step;
  (void)bytes;
  (void)rows;
  return nothing(ctx);
}

tg_status tgi_device_zero(const tg_context *ctx, void *memory, size_t bytes)
{
  (void)memory;
  (void)bytes;
  return nothing(ctx);
}

tg_status tgi_device_put(const tg_context *ctx, const tg_tensor *to, const tg_tensor *from,
                         const tg_tensor *index)
{
  (void)to;
  (void)from;
  (void)index;
  return nothing(ctx);
}

tg_status tgi_device_convert(const tg_context *ctx, const tg_tensor *to, const tg_tensor *from)
{
  (void)to;
  (void)from;
  return nothing(ctx);
}

tg_status tgi_device_fetch_open(const tg_context *ctx, size_t bytes, void **pinned, void **event)
{
  (void)bytes;
  *pinned = NULL;
  *event = NULL;
  return nothing(ctx);
}

tg_status tgi_device_fetch_start(const tg_context *ctx, void *pinned, const void *from,
                                 size_t bytes, void *event)
{
  (void)pinned;
  (void)from;
  (void)bytes;
  (void)event;
  return nothing(ctx);
}

tg_status tgi_device_fetch_wait(const tg_context *ctx, void *event)
{
  (void)event;
  return nothing(ctx);
}

void tgi_device_fetch_close(void *pinned, void *event)
{
  (void)pinned;
  (void)event;
}

tg_status tgi_device_stream_create(const tg_context *ctx, void **stream)
{
  *stream = NULL;
  return nothing(ctx);
}

void tgi_device_stream_destroy(const tg_context *ctx, void *stream)
{
  (void)ctx;
  (void)stream;
}

tg_status tgi_device_record_begin(const tg_context *ctx)
{
  return nothing(ctx);
}

tg_status tgi_device_record_end(const tg_context *ctx, void **graph)
{
  *graph = NULL;
  return nothing(ctx);
}

tg_status tgi_device_graph_launch(const tg_context *ctx, void *graph)
{
  (void)graph;
  return nothing(ctx);
}

void tgi_device_graph_destroy(void *graph)
{
  (void)graph;
}
