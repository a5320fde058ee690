/**
 * The GPUs of the machine; memory of a context's device for callers without an allocator; and what
 * it takes to keep a GPU busy without waiting for it: recorded work, values that are fetched while
 * later calls are queued. Everything here works in a build without CUDA and on a machine without a
 * GPU, and says so.
 */
#ifndef TEGULA_DEVICE_H
#define TEGULA_DEVICE_H

#include "context.h"
#include "tensor.h"
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_device_info {
  char name[128];   /* "NVIDIA H200" */
  char kernels[64]; /* chain of a context on it: "sm90 -> sm80 -> any"; "" if unsupported */
  char reason[192]; /* why it is not supported; "" if it is */
  int32_t compute_capability; /* 90 for 9.0 */
  int32_t multiprocessors;
  int64_t shared_bytes; /* most shared memory of a block */
  int64_t l2_bytes;
  int64_t memory_bytes;      /* of the device */
  int64_t free_bytes;        /* of these, now */
  double peak_bytes_per_s;   /* datasheet: memory clock and bus width; 0: not told */
  double peak_bf16_flops;    /* datasheet: dense products of the tensor cores at the boost clock; 0:
                                not known */
  bool cp_async, tma, wgmma; /* what the hardware has */
  bool supported;            /* a context can be created on it */
} tg_device_info;

/** GPUs that CUDA shows to this process; 0 without a driver, or in a build without CUDA. */
TG_API int32_t tg_device_count(void);

/**
 * Describes GPU `index`. Errors: BAD_ARGUMENT (no such GPU; out is NULL), UNSUPPORTED (a build
 * without CUDA), DEVICE.
 */
TG_API tg_status tg_device_get_info(int32_t index, tg_device_info *out, tg_error *error);

/**
 * Allocates memory that ops of the context can use: of its GPU, or of the host for the other
 * backends. At least 256-byte aligned, not initialised; 0 bytes give NULL. On a GPU a block that
 * was freed is given out again where it is of about the size (at most an eighth larger); when
 * memory runs out, all that are kept are released before the call fails. Errors: NO_MEMORY saying
 * what was asked for, what is free, and what was released; DEVICE. Not to be called while a graph
 * is recorded.
 */
TG_API tg_status tg_memory_allocate(tg_context *ctx, size_t bytes, void **out);

/**
 * Frees it; NULL is allowed. Waits for the context's work. A GPU's memory stays with the process,
 * for later calls of tg_memory_allocate by any context of the GPU, until the last such context is
 * destroyed. Not to be called while a graph is recorded.
 */
TG_API void tg_memory_free(tg_context *ctx, void *memory);

/**
 * Copies `rows` runs of `bytes` bytes, whose starts are `to_step` and `from_step` bytes apart, in
 * the order of the context's other calls. Either side may be memory of the host or of the
 * context's GPU; the host's is read or written completely when the call returns, which does not
 * wait for the GPU where it reads pageable memory: that goes through pinned memory of the context.
 * Ranges must not overlap. Errors: BAD_ARGUMENT (NULL with something to copy; a step below
 * `bytes`), DEVICE.
 */
TG_API tg_status tg_memory_copy(tg_context *ctx, void *to, size_t to_step, const void *from,
                                size_t from_step, size_t bytes, size_t rows);

/** Sets bytes to 0, in the order of the context's other calls. Errors: BAD_ARGUMENT, DEVICE. */
TG_API tg_status tg_memory_zero(tg_context *ctx, void *memory, size_t bytes);

/**
 * Stores rows at a place that the device knows, in the order of the context's other calls:
 *
 *   to[r, index, :] = from[r, :]
 *
 *   to     out  [rows, places, cols]  any dtype         last axis contiguous
 *   from   in   [rows, cols]          dtype of to       last axis contiguous; apart from `to`
 *   index  in   [1]                   i32               outside 0 .. places - 1: nothing is stored
 *
 * Asynchronous; can be recorded. Errors: BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (NULL, a stride),
 * DEVICE.
 */
TG_API tg_status tg_memory_put(tg_context *ctx, tg_tensor to, tg_tensor from, tg_tensor index);

/** A few bytes on their way from the context's device to the host, while calls after them are
 * queued. */
typedef struct tg_fetch tg_fetch;

/** Errors: BAD_ARGUMENT (0 bytes), NO_MEMORY, DEVICE. Not to be called while a graph is recorded.
 */
TG_API tg_status tg_fetch_create(tg_context *ctx, size_t bytes, tg_fetch **out);

/** Frees; NULL is allowed. Waits for a copy that is under way. */
TG_API void tg_fetch_destroy(tg_context *ctx, tg_fetch *fetch);

/** Starts copying the bytes at `from`, memory of the device, as the calls before leave them. What
 * was fetched before is lost. Errors: BAD_ARGUMENT, DEVICE. */
TG_API tg_status tg_fetch_start(tg_context *ctx, tg_fetch *fetch, const void *from);

/** Waits for the copy that was started last, and for nothing after it, and stores the bytes at
 * `to`. Errors: BAD_ARGUMENT (none was started), DEVICE. */
TG_API tg_status tg_fetch_wait(tg_context *ctx, tg_fetch *fetch, void *to);

/** Calls of a context that were recorded once and run as one: a CUDA graph. */
typedef struct tg_graph tg_graph;

/** Makes the calls to record, all on one context; what it returns, tg_graph_record does. */
typedef tg_status tg_graph_body(void *arg);

/**
 * Records what `body` gives the context's stream to do, which does not run meanwhile. Later
 * launches repeat it with the same addresses and scalars. Calls that wait, allocate, or copy to or
 * from the host cannot be recorded; the code of every kernel should have been loaded, by a
 * call before or by tg_context_load_kernels. Errors: those of `body`; BAD_ARGUMENT; UNSUPPORTED
 * (not on a GPU); NO_MEMORY; DEVICE. Nothing is recorded then, and the context is as before.
 */
TG_API tg_status tg_graph_record(tg_context *ctx, tg_graph_body *body, void *arg, tg_graph **out);

/** Runs it in the order of the context's other calls; asynchronous. Errors: BAD_ARGUMENT, DEVICE.
 */
TG_API tg_status tg_graph_launch(tg_context *ctx, const tg_graph *graph);

/** Frees; NULL is allowed. */
TG_API void tg_graph_destroy(tg_context *ctx, tg_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
