/* Devices through the CUDA runtime, which is linked statically: the library runs without a GPU too.
 */
#include "core/device_state.h"
#include "cuda/cublaslt/cublaslt.h"
#include "cuda/runtime/measured_products.h"
#include "cuda/runtime/memory_pool.h"
#include "cuda/runtime/probe.h"
#include "cuda/runtime/runtime_status.h"
#include "cuda/runtime/staging.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tg_status refuse(tg_error *error, tg_status status, int index, cudaError_t e)
{
  (void)cudaGetLastError();
  return tgi_error_set(error, status,
                       "context_create: device_index: expected a CUDA device, got %d: %s (%s)",
                       index, cudaGetErrorName(e), cudaGetErrorString(e));
}

static int attribute(int index, enum cudaDeviceAttr which)
{
  int value = 0;
  return cudaDeviceGetAttribute(&value, which, index) == cudaSuccess ? value : 0;
}

static int compute_capability(int index)
{
  return 10 * attribute(index, cudaDevAttrComputeCapabilityMajor) +
         attribute(index, cudaDevAttrComputeCapabilityMinor);
}

/* The current device must be `index`. */
static tg_status fill(tgi_device *d, int index, tg_error *error)
{
  d->index = index;
  d->sm = compute_capability(index);
  d->multiprocessors = attribute(index, cudaDevAttrMultiProcessorCount);
  d->shared_bytes = attribute(index, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  d->l2_bytes = attribute(index, cudaDevAttrL2CacheSize);
  d->entries = tgi_cuda_probe(d->sm);
  if (!d->entries) {
    return tgi_error_set(error, TG_UNSUPPORTED,
                         "context_create: device_index: expected a GPU that this build has code "
                         "for (" TGI_CUDA_ARCHS "), got %d with compute capability %d.%d",
                         index, d->sm / 10, d->sm % 10);
  }
  d->pool = tgi_memory_pool_open(index);
  if (!d->pool) {
    return tgi_error_set(error, TG_NO_MEMORY,
                         "context_create: expected memory for a pool, got none");
  }
  cudaError_t e = cudaMalloc((void **)&d->fault, sizeof *d->fault);
  if (e == cudaSuccess) {
    e = cudaMemset(d->fault, 0, sizeof *d->fault);
  }
  if (e == cudaSuccess) {
    e = cudaMalloc((void **)&d->counts, TGI_COUNTS * sizeof *d->counts);
  }
  if (e == cudaSuccess) {
    e = cudaMemset(d->counts, 0, TGI_COUNTS * sizeof *d->counts);
  }
  return e == cudaSuccess ? TG_OK : refuse(error, tgi_cuda_status(e), index, e);
}

/* Dense bf16 operations of a multiprocessor in a clock, f32 sums; 0: no tensor cores for bf16, or
 * not known. Source: NVIDIA's architecture whitepapers. */
static double bf16_flops_per_clock(int sm)
{
  switch (sm) {
  case 80:
    return 2048;
  case 86:
  case 89:
  case 120:
  case 121:
    return 512;
  case 87:
    return 1024;
  case 90:
    return 4096;
  case 100:
  case 103:
    return 8192;
  default:
    return 0;
  }
}

static void describe_current(int index, tg_device_info *out, unsigned *entries)
{
  struct cudaDeviceProp properties;
  size_t available = 0, total = 0;
  const int sm = compute_capability(index);
  if (cudaGetDeviceProperties(&properties, index) == cudaSuccess) {
    memcpy(out->name, properties.name, sizeof out->name - 1);
  }
  cudaMemGetInfo(&available, &total);
  out->compute_capability = sm;
  out->multiprocessors = attribute(index, cudaDevAttrMultiProcessorCount);
  out->shared_bytes = attribute(index, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  out->l2_bytes = attribute(index, cudaDevAttrL2CacheSize);
  out->memory_bytes = (int64_t)total;
  out->free_bytes = (int64_t)available;
  /* kHz and bits; two transfers a clock */
  out->peak_bytes_per_s = 2e3 * attribute(index, cudaDevAttrMemoryClockRate) *
                          attribute(index, cudaDevAttrGlobalMemoryBusWidth) / 8;
  out->peak_bf16_flops = bf16_flops_per_clock(sm) * out->multiprocessors * 1e3 *
                         attribute(index, cudaDevAttrClockRate);
  out->cp_async = sm >= 80;
  out->tma = sm >= 90;
  out->wgmma = sm == 90;
  *entries = tgi_cuda_probe(sm);
  out->supported = *entries != 0;
  if (!out->supported) {
    snprintf(out->reason, sizeof out->reason,
             "this build has code for " TGI_CUDA_ARCHS ", not for %d.%d", sm / 10, sm % 10);
  }
}

int tgi_device_count(void)
{
  int count = 0;
  const cudaError_t e = cudaGetDeviceCount(&count);
  (void)cudaGetLastError();
  return e == cudaSuccess ? count : 0;
}

tg_status tgi_device_describe(int index, tg_device_info *out, unsigned *entries, tg_error *error)
{
  const int count = tgi_device_count();
  int previous = 0;
  *entries = 0;
  if (index < 0 || index >= count) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "device_get_info: index: expected one of %d GPUs, got %d", count, index);
  }
  cudaError_t e = cudaGetDevice(&previous);
  if (e == cudaSuccess) {
    e = cudaSetDevice(index);
  }
  if (e != cudaSuccess) {
    (void)cudaGetLastError();
    return tgi_error_set(error, TG_DEVICE, "device_get_info: index: expected GPU %d, got %s (%s)",
                         index, cudaGetErrorName(e), cudaGetErrorString(e));
  }
  describe_current(index, out, entries);
  cudaSetDevice(previous);
  (void)cudaGetLastError();
  return TG_OK;
}

static tg_status open_device(int index, tgi_device **out, tg_error *error)
{
  int previous = -1, count = 0;
  cudaError_t e = cudaGetDeviceCount(&count);
  if (e == cudaErrorNoDevice || e == cudaErrorInsufficientDriver || (e == cudaSuccess && !count)) {
    return refuse(error, TG_UNSUPPORTED, index, e == cudaSuccess ? cudaErrorNoDevice : e);
  }
  if (e == cudaSuccess && (index < 0 || index >= count)) {
    return tgi_error_set(error, TG_BAD_ARGUMENT,
                         "context_create: device_index: expected 0 to %d, got %d", count - 1,
                         index);
  }
  if (e == cudaSuccess) {
    e = cudaGetDevice(&previous);
  }
  if (e == cudaSuccess) {
    e = cudaSetDevice(index);
  }
  if (e != cudaSuccess) {
    return refuse(error, tgi_cuda_status(e), index, e);
  }
  tgi_device *d = calloc(1, sizeof *d);
  tg_status status = d ? fill(d, index, error)
                       : tgi_error_set(error, TG_NO_MEMORY,
                                       "context_create: expected %zu bytes, got none", sizeof *d);
  cudaSetDevice(previous);
  if (status != TG_OK) {
    tgi_device_close(d);
    d = NULL;
  }
  *out = d;
  return status;
}

tg_status tgi_device_open(int index, tgi_device **out, tg_error *error)
{
  *out = NULL;
  /* Also while the caller records a graph on a stream of its own: nothing here is part of it. */
  enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  const tg_status status = open_device(index, out, error);
  cudaThreadExchangeStreamCaptureMode(&mode);
  return status;
}

void tgi_device_close(tgi_device *device)
{
  if (device) {
    tgi_lt_close(device->lt);
    tgi_tuned_close(device->tuned);
    tgi_staging_close(device->staging);
    tgi_memory_pool_close(device->pool);
    cudaFree(device->fault);
    cudaFree(device->counts);
    free(device);
  }
}

tg_status tgi_device_prepare(const tg_context *ctx)
{
  if (!ctx->device->lt) {
    char why[128];
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    ctx->device->lt = tgi_lt_open(ctx->device->sm, why, sizeof why);
    tgi_tune_open(ctx->device);
    cudaThreadExchangeStreamCaptureMode(&mode);
  }
  ctx->device->prepared = true;
  return TG_OK;
}

tg_status tgi_device_enter(const tg_context *ctx, int *previous)
{
  *previous = -1;
  if (!ctx->device) {
    return TG_OK;
  }
  int current = 0;
  cudaError_t e = cudaGetDevice(&current);
  if (e == cudaSuccess && current != ctx->device->index) {
    *previous = current;
    e = cudaSetDevice(ctx->device->index);
  }
  return tgi_cuda_check(ctx, "device", e);
}

void tgi_device_leave(const tg_context *ctx, int previous)
{
  (void)ctx;
  if (previous >= 0) {
    cudaSetDevice(previous);
  }
}

tg_status tgi_device_wait(const tg_context *ctx)
{
  return tgi_cuda_check(ctx, "stream", cudaStreamSynchronize(ctx->device->stream));
}

tg_status tgi_device_take_fault(const tg_context *ctx, tgi_fault *fault)
{
  tg_status status = tgi_device_copy(ctx, fault, sizeof *fault, ctx->device->fault, sizeof *fault,
                                     sizeof *fault, 1);
  if (status == TG_OK && fault->set) {
    const cudaError_t e =
        cudaMemsetAsync(ctx->device->fault, 0, sizeof *fault, ctx->device->stream);
    status = tgi_cuda_check(ctx, "faults", e);
  }
  return status;
}

tg_status tgi_device_allocate(const tg_context *ctx, size_t bytes, void **out)
{
  *out = NULL;
  const cudaError_t e = bytes ? cudaMalloc(out, bytes) : cudaSuccess;
  if (e == cudaErrorMemoryAllocation) {
    size_t available = 0, total = 0;
    (void)cudaGetLastError();
    cudaMemGetInfo(&available, &total);
    return tgi_report(ctx, TG_NO_MEMORY,
                      "memory: expected %zu bytes on CUDA device %d, got %zu free of %zu", bytes,
                      ctx->device->index, available, total);
  }
  return tgi_cuda_check(ctx, "memory", e);
}

void tgi_device_free(const tg_context *ctx, void *memory)
{
  (void)ctx;
  cudaFree(memory);
}

tg_status tgi_device_zero(const tg_context *ctx, void *memory, size_t bytes)
{
  return tgi_cuda_check(ctx, "memory", cudaMemsetAsync(memory, 0, bytes, ctx->device->stream));
}

tg_status tgi_device_stream_create(const tg_context *ctx, void **stream)
{
  return tgi_cuda_check(ctx, "stream",
                        cudaStreamCreateWithFlags((cudaStream_t *)stream, cudaStreamNonBlocking));
}

void tgi_device_stream_destroy(const tg_context *ctx, void *stream)
{
  (void)ctx;
  cudaStreamDestroy(stream);
}

/* The default stream is back in its place. */
static void end_recording(tgi_device *d)
{
  if (d->recording) {
    cudaStreamDestroy(d->recording);
    d->recording = NULL;
    d->stream = NULL;
  }
}

tg_status tgi_device_record_begin(const tg_context *ctx)
{
  tgi_device *d = ctx->device;
  if (!d->stream) { /* cannot be recorded itself */
    const tg_status status = tgi_device_stream_create(ctx, &d->recording);
    if (status != TG_OK) {
      d->recording = NULL;
      return status;
    }
    d->stream = d->recording;
  }
  const tg_status status = tgi_cuda_check(
      ctx, "graph", cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal));
  if (status != TG_OK) {
    end_recording(d);
  }
  return status;
}

tg_status tgi_device_record_end(const tg_context *ctx, void **graph)
{
  cudaGraph_t recorded = NULL;
  *graph = NULL;
  cudaError_t e = cudaStreamEndCapture(ctx->device->stream, &recorded);
  end_recording(ctx->device);
  if (e == cudaSuccess) {
    e = cudaGraphInstantiate((cudaGraphExec_t *)graph, recorded, 0);
  }
  if (recorded) {
    cudaGraphDestroy(recorded);
  }
  if (e != cudaSuccess) {
    *graph = NULL;
  }
  return tgi_cuda_check(ctx, "graph", e);
}

tg_status tgi_device_graph_launch(const tg_context *ctx, void *graph)
{
  return tgi_cuda_check(ctx, "graph", cudaGraphLaunch(graph, ctx->device->stream));
}

void tgi_device_graph_destroy(void *graph)
{
  if (graph) {
    cudaGraphExecDestroy(graph);
  }
}
