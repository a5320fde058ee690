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
  TG_BACKEND_CUDA = 3, /* UNSUPPORTED in this build */
} tg_backend;

typedef struct tg_context_options {
  tg_backend backend;   /* required */
  int32_t device_index; /* CUDA ordinal; 0 for the others */
  int32_t num_threads;  /* CPU threads; 0: one per CPU that the process may run on, or
                           OMP_NUM_THREADS. Results have the same bits at any number. */
  int32_t reserved;     /* 0 */
  const char *entry;    /* first chain entry to try ("avx2"); NULL: TEGULA_ENTRY, else the best */
} tg_context_options;

/**
 * Creates a context. Errors: BAD_ARGUMENT (no such backend or entry, negative number),
 * UNSUPPORTED (this build or machine lacks the backend or entry), NO_MEMORY. `error` may be NULL;
 * on failure *out is NULL.
 */
TG_API tg_status tg_context_create(const tg_context_options *options, tg_context **out,
                                   tg_error *error);

/** Frees the context; NULL is allowed. Calls that are still running must be over. */
TG_API void tg_context_destroy(tg_context *ctx);

/** Does whatever is slow (device modules, handles); afterwards no op loads or allocates. */
TG_API tg_status tg_context_prepare(tg_context *ctx);

/** The stream of later calls (a cudaStream_t). BAD_ARGUMENT on a CPU context unless NULL. */
TG_API tg_status tg_context_set_stream(tg_context *ctx, void *stream);

/**
 * Waits for the context's work and returns the first data error that a kernel recorded (an id out
 * of range, say) since the last check, with its message. CPU ops return such errors themselves.
 */
TG_API tg_status tg_context_check(tg_context *ctx);

/** Message of the last call on this context that failed; "" if none did. Valid until the next. */
TG_API const char *tg_context_message(const tg_context *ctx);

/** Name of the chain entry that is tried first: "ref", "avx512", "avx2", "generic". */
TG_API const char *tg_context_entry(const tg_context *ctx);

/** Threads that CPU ops of this context use. */
TG_API int32_t tg_context_num_threads(const tg_context *ctx);

/** "0.1.0" */
TG_API const char *tg_version(void);

#ifdef __cplusplus
}
#endif
#endif
