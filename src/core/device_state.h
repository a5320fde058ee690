/**
 * The GPU of a CUDA context, without CUDA headers. e.c implements it. In a build
 * without CUDA core/no_device.c does, and opening a device fails.
 */
#ifndef TGI_CORE_DEVICE_STATE_H
#define TGI_CORE_DEVICE_STATE_H

#include "core/context_state.h"
#include "tegula/device.h"
#include <stdbool.h>
#include <stddef.h>

/**
 * A data error that a kernel found, such as an id out of range, in device memory. Of several errors
 * since the last tg_context_check the one with the lowest row, slot and index is kept, whichever
 * thread writes first.
 */
typedef struct tgi_fault {
  uint32_t lock;
  uint32_t set;             /* 0: none */
  int32_t row, slot;        /* of ops.def; offset of the slot in the args struct */
  int64_t index;            /* element of the slot's tensor, row-major */
  int64_t value, low, high; /* the value found, and its valid range */
} tgi_fault;

/** Number of counters for the context's kernels; see `counts`. */
enum { TGI_COUNTS = 8192 };

struct tgi_device {
  int index; /* CUDA ordinal */
  int sm;    /* compute capability: 90 for 9.0 */
  int multiprocessors;
  int shared_bytes; /* largest shared memory of a block */
  int64_t l2_bytes;
  void *stream;      /* of later calls */
  void *recording;   /* replaces the default stream while its calls are recorded */
  tgi_fault *fault;  /* on the device */
  uint32_t *counts;  /* TGI_COUNTS on the device; 0 while none of the context's kernels runs */
  unsigned entries;  /* bit i: kernels of tgi_cuda_entry i can run */
  struct tgi_lt *lt; /* cublasLt after tg_context_prepare; NULL: none */
  struct tgi_tuned *tuned; /* measured products, after tg_context_prepare; NULL: none */
  int64_t measured;        /* products, since tg_tune_begin */
  bool prepared, tuning;
  bool overlaps; /* kernels that read packed weights may begin before the one ahead has ended */
  struct tgi_memory_pool *pool; /* of the GPU, shared by its contexts */
  struct tgi_staging *staging;  /* pinned memory for copies; NULL: none yet */
};

/** Entries of the CUDA chain, best last. */
typedef enum tgi_cuda_entry {
  TGI_CUDA_ANY,
  TGI_CUDA_SM80,
  TGI_CUDA_SM90,
  TGI_CUDA_ENTRIES
} tgi_cuda_entry;

/**
 * Opens device `index`. Errors: UNSUPPORTED (no such device, a driver that is too old, or a build
 * without code for it), NO_MEMORY, DEVICE.
 */
tg_status tgi_device_open(int index, tgi_device **out, tg_error *error);
void tgi_device_close(tgi_device *device);

/** Implements tg_context_prepare. A library that is not installed is skipped. */
tg_status tgi_device_prepare(const tg_context *ctx);

/** Implement tg_tune_begin and tg_tune_end. */
tg_status tgi_device_tune_begin(const tg_context *ctx);
tg_status tgi_device_tune_end(const tg_context *ctx, int64_t *measured);

/** Implements tg_context_load_kernels. Adds to both counts, also for work before an error. */
tg_status tgi_device_load_kernels(const tg_context *ctx, int64_t *found, int64_t *loaded);

int tgi_device_count(void);

/** Fills all of an info except `kernels`. */
tg_status tgi_device_describe(int index, tg_device_info *out, unsigned *entries, tg_error *error);

/** Makes the context's device the thread's current one and returns the previous one, which `leave`
 * restores. They do nothing on contexts of other backends. */
tg_status tgi_device_enter(const tg_context *ctx, int *previous);
void tgi_device_leave(const tg_context *ctx, int previous);

/** Waits for the context's stream. */
tg_status tgi_device_wait(const tg_context *ctx);

/** Waits for the stream, copies the first fault to the host and clears it. */
tg_status tgi_device_take_fault(const tg_context *ctx, tgi_fault *fault);

/** Allocates memory of the device, 256-byte aligned; 0 bytes: NULL. The message of NO_MEMORY gives
 * the free bytes. Each block comes directly from the driver, so that a sanitizer detects its
 * bounds. */
tg_status tgi_device_allocate(const tg_context *ctx, size_t bytes, void **out);
void tgi_device_free(const tg_context *ctx, void *memory);

/** The same from the GPU's memory pool; `give_back` waits for the context's stream. */
tg_status tgi_device_take(const tg_context *ctx, size_t bytes, void **out);
void tgi_device_give_back(const tg_context *ctx, void *memory);

/** Copies rows on the context's stream. On return host memory has been read or written. */
tg_status tgi_device_copy(const tg_context *ctx, void *to, size_t to_step, const void *from,
                          size_t from_step, size_t bytes, size_t rows);
tg_status tgi_device_zero(const tg_context *ctx, void *memory, size_t bytes);

/** Implements tg_memory_put for checked views. */
tg_status tgi_device_put(const tg_context *ctx, const tg_tensor *to, const tg_tensor *from,
                         const tg_tensor *index);

/** Implements tg_memory_convert for checked views that are not empty. */
tg_status tgi_device_convert(const tg_context *ctx, const tg_tensor *to, const tg_tensor *from);

/** Allocates pinned host memory and an event for copies to it. On failure both are NULL. */
tg_status tgi_device_fetch_open(const tg_context *ctx, size_t bytes, void **pinned, void **event);
tg_status tgi_device_fetch_start(const tg_context *ctx, void *pinned, const void *from,
                                 size_t bytes, void *event);
tg_status tgi_device_fetch_wait(const tg_context *ctx, void *event);
void tgi_device_fetch_close(void *pinned, void *event);

/** Creates a stream for the context; it must be destroyed before the context. */
tg_status tgi_device_stream_create(const tg_context *ctx, void **stream);
void tgi_device_stream_destroy(const tg_context *ctx, void *stream);

/** Captures all work submitted to the context's stream in a graph, without running it, until `end`,
 * which must be called even after an error. */
tg_status tgi_device_record_begin(const tg_context *ctx);
tg_status tgi_device_record_end(const tg_context *ctx, void **graph);
tg_status tgi_device_graph_launch(const tg_context *ctx, void *graph);
void tgi_device_graph_destroy(void *graph);

#endif
