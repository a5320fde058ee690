/**
 * The GPUs of the machine, and memory of a context's device for callers without an allocator.
 * Everything here works in a build without CUDA and on a machine without a GPU, and says so.
 */
#ifndef TEGULA_DEVICE_H
#define TEGULA_DEVICE_H

#include "context.h"
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
 * backends. At least 256-byte aligned, not initialised; 0 bytes give NULL. Errors: NO_MEMORY saying
 * what was asked for and what is free, DEVICE. Not to be called while a graph is captured.
 */
TG_API tg_status tg_memory_allocate(tg_context *ctx, size_t bytes, void **out);

/** Frees it; NULL is allowed. Waits for the GPU's work. */
TG_API void tg_memory_free(tg_context *ctx, void *memory);

/**
 * Copies `rows` runs of `bytes` bytes, whose starts are `to_step` and `from_step` bytes apart, in
 * the order of the context's other calls. Either side may be memory of the host or of the
 * context's GPU; the host's is read or written completely when the call returns. Ranges must not
 * overlap. Errors: BAD_ARGUMENT (NULL with something to copy; a step below `bytes`), DEVICE.
 */
TG_API tg_status tg_memory_copy(tg_context *ctx, void *to, size_t to_step, const void *from,
                                size_t from_step, size_t bytes, size_t rows);

/** Sets bytes to 0, in the order of the context's other calls. Errors: BAD_ARGUMENT, DEVICE. */
TG_API tg_status tg_memory_zero(tg_context *ctx, void *memory, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
