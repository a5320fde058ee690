/**
 * Contexts: the backend that runs ops, its threads or stream, and the last message.
 *
 * A context belongs to one device and is used by one thread at a time; it is cheap, so each thread
 * has its own. It is the only state of the library.
 */
#ifndef TEGULA_CONTEXT_H
#define TEGULA_CONTEXT_H

#include "status.h"
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_context tg_context;

typedef enum tg_backend {
  TG_BACKEND_REF = 1,  /* plain f64 code: the oracle of every test; slow */
  TG_BACKEND_CPU = 2,  /* chain avx512 -> avx2 -> generic */
  TG_BACKEND_CUDA = 3, /* chain sm90 -> sm80 -> any; needs a build with CUDA and a GPU */
} tg_backend;

typedef struct tg_context_options {
  tg_backend backend;   /* required */
  int32_t device_index; /* CUDA ordinal; 0 for the others */
  int32_t num_threads;  /* CPU threads; 0: one per CPU that the process may run on, or
                           OMP_NUM_THREADS. Results have the same bits at any number. */
  int32_t reserved;     /* 0 */
  const char *entry;    /* first chain entry to try ("avx2"); NULL: TEGULA_ENTRY, unless that is
                           an entry of another backend, else the best */
} tg_context_options;

/**
 * Creates a context. Errors: BAD_ARGUMENT (no such backend, entry or device, negative number),
 * UNSUPPORTED (this build or machine lacks the backend or entry, or this build has no code for the
 * GPU), NO_MEMORY, DEVICE. `error` may be NULL; on failure *out is NULL.
 */
TG_API tg_status tg_context_create(const tg_context_options *options, tg_context **out,
                                   tg_error *error);

/** Frees the context; NULL is allowed. Calls that are still running must be over. */
TG_API void tg_context_destroy(tg_context *ctx);

/**
 * Does whatever is slow, so that no op has to: on a GPU it opens cublasLt, if the machine has it,
 * and 32 MiB of memory for it; products then run there, without it on the library's own kernels.
 * The code of a kernel is loaded by the driver when it is first launched. On a CPU: nothing.
 * Errors: DEVICE.
 */
TG_API tg_status tg_context_prepare(tg_context *ctx);

/**
 * Loads the code of every kernel that calls of the context can come to, so that none of them waits
 * for it. What it loads stays with the process, for all contexts of the GPU. Where the build has no
 * code for the GPU but PTX, the driver compiles it first, which may take minutes.
 *
 *   found   out  optional: the kernels that there are
 *   loaded  out  optional: those that had not been loaded before; 0 in a second call
 *
 * On a CPU: nothing, and both are 0. Not to be called while a graph is recorded. Errors:
 * BAD_ARGUMENT (ctx is NULL), UNSUPPORTED (a driver before CUDA 12.4 does not list kernels),
 * NO_MEMORY, DEVICE.
 */
TG_API tg_status tg_context_load_kernels(tg_context *ctx, int64_t *found, int64_t *loaded);

/** The stream of later calls (a cudaStream_t); NULL, as at first: the default one. Calls of one
 * context must not run at the same time, in graphs neither: they share its memory. BAD_ARGUMENT on
 * a CPU context unless NULL. */
TG_API tg_status tg_context_set_stream(tg_context *ctx, void *stream);

/**
 * Waits for the context's work and returns the first data error that a kernel recorded (an id out
 * of range, say) since the last check, with its message. CPU ops return such errors themselves,
 * most before anything is written; on a GPU the rows concerned become NaN, and the others are
 * computed.
 */
TG_API tg_status tg_context_check(tg_context *ctx);

/** Message of the last call on this context that failed; "" if none did. Valid until the next. */
TG_API const char *tg_context_message(const tg_context *ctx);

/** Name of the chain entry that is tried first: "ref", "avx512", "avx2", "generic", "sm90", "sm80",
 * "any". */
TG_API const char *tg_context_entry(const tg_context *ctx);

/** Threads that CPU ops of this context use. */
TG_API int32_t tg_context_num_threads(const tg_context *ctx);

/** "0.1.0" */
TG_API const char *tg_version(void);

#ifdef __cplusplus
}
#endif
#endif
