/**
 * GPUs of the machine, memory of a context's device, asynchronous fetches and CUDA graphs.
 *
 * Callers without an allocator of their own get device memory here. Fetches and graphs keep a GPU
 * busy without waiting for it. Every function may be called in a build without CUDA and on a
 * machine without a GPU; those that need a GPU then return an error.
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
  char reason[192]; /* why it is unsupported; "" if supported */
  int32_t compute_capability; /* 90 for 9.0 */
  int32_t multiprocessors;
  int64_t shared_bytes; /* largest shared memory of a block */
  int64_t l2_bytes;
  int64_t memory_bytes;      /* of the device */
  int64_t free_bytes;        /* of these, now */
  double peak_bytes_per_s;   /* datasheet: memory clock and bus width; 0: unknown */
  double peak_bf16_flops;    /* datasheet: dense products of the tensor cores at the boost clock; 0:
                                unknown */
  bool cp_async, tma, wgmma; /* features of the hardware */
  bool supported;            /* a context can be created on it */
} tg_device_info;

/** Number of GPUs visible to this process; 0 without a driver, or in a build without CUDA. */
TG_API int32_t tg_device_count(void);

/**
 * Describes GPU `index`. Errors: BAD_ARGUMENT (no such GPU; out is NULL), UNSUPPORTED (a build
 * without CUDA), DEVICE.
 */
TG_API tg_status tg_device_get_info(int32_t index, tg_device_info *out, tg_error *error);

/**
 * Allocates memory for ops of the context: on its GPU, or on the host for other backends. The
 * memory is at least 256-byte aligned and not initialised; 0 bytes give NULL. On a GPU a freed
 * block is reused if it is at most an eighth larger than the request. When memory runs out, all
 * cached blocks are released before the call fails. It must not be called while a graph is
 * recorded. Errors: NO_MEMORY (the message gives the bytes requested, free and released), DEVICE.
 */
TG_API tg_status tg_memory_allocate(tg_context *ctx, size_t bytes, void **out);

/**
 * Frees `memory` after waiting for the context's work; NULL is allowed. Memory of a GPU stays
 * cached in the process for later calls of tg_memory_allocate by any context of that GPU, until its
 * last context is destroyed. It must not be called while a graph is recorded.
 */
TG_API void tg_memory_free(tg_context *ctx, void *memory);

/**
 * Copies `rows` runs of `bytes` bytes, in the order of the context's other calls. Their starts are
 * `to_step` and `from_step` bytes apart. Either side may be host memory or memory of the context's
 * GPU. Host memory has been read or written completely when the call returns. A copy from pageable
 * host memory does not wait for the GPU: it is staged in pinned memory of the context. Ranges must
 * not overlap. Errors: BAD_ARGUMENT (NULL with something to copy; a step below `bytes`), DEVICE.
 */
TG_API tg_status tg_memory_copy(tg_context *ctx, void *to, size_t to_step, const void *from,
                                size_t from_step, size_t bytes, size_t rows);

/** Sets bytes to 0, in the order of the context's other calls. Errors: BAD_ARGUMENT, DEVICE. */
TG_API tg_status tg_memory_zero(tg_context *ctx, void *memory, size_t bytes);

/**
 * Stores rows at an index held in device memory, in the order of the context's other calls:
 *
 *   to[r, index, :] = from[r, :]
 *
 *   to     out  [rows, places, cols]  any dtype         last axis contiguous
 *   from   in   [rows, cols]          dtype of to       last axis contiguous; no overlap with to
 *   index  in   [1] or [rows]         i32               contiguous; of all rows, or of each; a row
 *                                                       outside 0 .. places - 1 is not stored
 *
 * Rows of `to` may have stride 0, and so be one: each index then occurs once at most.
 *
 * Asynchronous; capturable. Errors: BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT (NULL, a stride), DEVICE.
 */
TG_API tg_status tg_memory_put(tg_context *ctx, tg_tensor to, tg_tensor from, tg_tensor index);

/**
 * Converts elements to another dtype, in the order of the context's other calls:
 *
 *   to[i, j] = from[i, j]
 *
 *   to    out  [rows, cols]  f32|f16|bf16  any strides; no overlap with from
 *   from  in   [rows, cols]  f32|f16|bf16  any strides; a transposed view is a transposition
 *
 * Values are rounded to nearest even; a NaN stays a NaN. Equal dtypes are a copy of bits. Both
 * tensors are aligned to their elements, in memory of the context's device. Asynchronous;
 * capturable; the same bits at any number of threads. Errors: BAD_SHAPE, BAD_DTYPE, BAD_ARGUMENT
 * (NULL, a negative stride), DEVICE.
 */
TG_API tg_status tg_memory_convert(tg_context *ctx, tg_tensor to, tg_tensor from);

/** An asynchronous copy of a few bytes from the context's device to the host. */
typedef struct tg_fetch tg_fetch;

/**
 * Creates a fetch of `bytes` bytes. It must not be called while a graph is recorded. Errors:
 * BAD_ARGUMENT (0 bytes), NO_MEMORY, DEVICE.
 */
TG_API tg_status tg_fetch_create(tg_context *ctx, size_t bytes, tg_fetch **out);

/** Frees the fetch after waiting for a pending copy; NULL is allowed. */
TG_API void tg_fetch_destroy(tg_context *ctx, tg_fetch *fetch);

/**
 * Starts a copy of the bytes at `from`, memory of the device, ordered after all earlier calls. It
 * replaces the bytes of the previous fetch. Errors: BAD_ARGUMENT, DEVICE.
 */
TG_API tg_status tg_fetch_start(tg_context *ctx, tg_fetch *fetch, const void *from);

/**
 * Waits for the copy that was started last, but not for later calls, and stores the bytes at `to`.
 * Errors: BAD_ARGUMENT (none was started), DEVICE.
 */
TG_API tg_status tg_fetch_wait(tg_context *ctx, tg_fetch *fetch, void *to);

/** A CUDA graph: calls of a context, recorded once and launched together. */
typedef struct tg_graph tg_graph;

/** Makes the calls to record, all on one context. tg_graph_record returns its status. */
typedef tg_status tg_graph_body(void *arg);

/**
 * Records the work that `body` submits to the context's stream, without running it. Each launch
 * repeats it with the same addresses and scalars. Calls that wait, allocate, or copy to or from the
 * host cannot be recorded. Load the kernels' code first, by an earlier call or by
 * tg_context_load_kernels. Errors: those of `body`, BAD_ARGUMENT, UNSUPPORTED (not on a GPU),
 * NO_MEMORY, DEVICE; nothing is then recorded and the context is unchanged.
 */
TG_API tg_status tg_graph_record(tg_context *ctx, tg_graph_body *body, void *arg, tg_graph **out);

/**
 * Runs the graph in the order of the context's other calls; asynchronous. Errors: BAD_ARGUMENT,
 * DEVICE.
 */
TG_API tg_status tg_graph_launch(tg_context *ctx, const tg_graph *graph);

/** Frees the graph; NULL is allowed. */
TG_API void tg_graph_destroy(tg_context *ctx, tg_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
