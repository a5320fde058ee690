/**
 * Contexts: the backend that runs ops, its threads or stream, and the last error message.
 *
 * A context belongs to one device. One thread at a time may use it. Contexts are cheap: give each
 * thread its own. The process-wide state of libtegula is the pool of worker threads, the detected
 * processor and the pools of GPU memory; everything else is in contexts and in
 * what callers create.
 */
#ifndef TEGULA_CONTEXT_H
#define TEGULA_CONTEXT_H

#include "status.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_context tg_context;

typedef enum tg_backend {
  TG_BACKEND_REF = 1,  /* plain f64 code, the reference of every test; slow */
  TG_BACKEND_CPU = 2,  /* chain avx512 -> avx2 -> generic */
  TG_BACKEND_CUDA = 3, /* chain sm90 -> sm80 -> any; needs a build with CUDA and a GPU */
} tg_backend;

typedef struct tg_context_options {
  tg_backend backend;   /* required */
  int32_t device_index; /* CUDA ordinal; 0 for the others */
  int32_t num_threads;  /* CPU threads, as in tg_context_set_num_threads; 0: the default */
  int32_t reserved;     /* 0 */
  const char *entry;    /* first chain entry to try ("avx2"). NULL: that in TEGULA_ENTRY if it
                           belongs to this backend, else the best */
} tg_context_options;

/**
 * Creates a context. Errors: BAD_ARGUMENT (no such backend, entry or device, negative number),
 * UNSUPPORTED (this build or machine lacks the backend or entry, or this build has no code for the
 * GPU), NO_MEMORY, DEVICE. `error` may be NULL; on failure *out is NULL.
 */
TG_API tg_status tg_context_create(const tg_context_options *options, tg_context **out,
                                   tg_error *error);

/** Frees the context; NULL is allowed. All its calls must have completed. */
TG_API void tg_context_destroy(tg_context *ctx);

/**
 * Performs the slow set-up in advance. On a GPU it opens cublasLt, if the machine has it, and
 * allocates 32 MiB for it; matrix products then use cublasLt, otherwise the library's own kernels.
 * The driver still loads each kernel's code at its first launch (see tg_context_load_kernels). On a
 * CPU it does nothing. Errors: DEVICE.
 */
TG_API tg_status tg_context_prepare(tg_context *ctx);

/**
 * Loads the code of every kernel that calls of the context may launch, so that no later call waits
 * for it. The code stays loaded for the whole process and all contexts of the GPU. If the build
 * holds only PTX for the GPU, the driver compiles it first, which may take minutes.
 *
 *   found   out  optional: number of kernels
 *   loaded  out  optional: number of kernels that this call loaded; 0 in a second call
 *
 * On a CPU it does nothing and both are 0. It must not be called while a graph is recorded. Errors:
 * BAD_ARGUMENT (ctx is NULL), UNSUPPORTED (drivers before CUDA 12.4 cannot list kernels),
 * NO_MEMORY, DEVICE.
 */
TG_API tg_status tg_context_load_kernels(tg_context *ctx, int64_t *found, int64_t *loaded);

/**
 * Sets the CUDA stream of later calls (a cudaStream_t). NULL, the initial value, is the default
 * stream. Calls of one context share its memory, so they must not run concurrently, nor in graphs.
 * Errors: BAD_ARGUMENT (a stream other than NULL on a CPU context).
 */
TG_API tg_status tg_context_set_stream(tg_context *ctx, void *stream);

/**
 * Allows or forbids that kernels of later calls begin while the kernel ahead of them on the stream
 * still runs (programmatic dependent launch). A new context forbids it. Until the kernel ahead has
 * ended they read the packed weight and nothing else. So the caller promises that the kernel
 * directly ahead of a call does not write the call's packed weight, whoever launched it, nor one
 * of another stream for which the call's stream waits there. Copies and sets of memory directly
 * ahead are waited for in any case. So is all before the kernel ahead, unless that is a kernel of
 * the caller's which lets others begin before its own wait. A recorded graph keeps what held when
 * it was recorded.
 *
 * It concerns linear_int4, linear_int8 (weight-only mode) and linear_fp8 with x in f16 or bf16, in
 * the calls that the entry sm90 runs. It has no effect elsewhere, on contexts of a CPU, or on the
 * bits of results. Errors: BAD_ARGUMENT (ctx is NULL).
 */
TG_API tg_status tg_context_allow_overlap(tg_context *ctx, bool allow);

/**
 * Waits for the context's work. Returns the first data error, such as an id out of range, that a
 * kernel recorded since the last check, with its message. CPU ops return such errors themselves,
 * most of them before anything is written. On a GPU the affected rows become NaN and the other rows
 * are computed.
 */
TG_API tg_status tg_context_check(tg_context *ctx);

/**
 * Message of the last failed call on this context; "" if none failed. Valid until the next call.
 */
TG_API const char *tg_context_message(const tg_context *ctx);

/**
 * Name of the first entry of the chain: "ref", "avx512", "avx2", "generic", "sm90", "sm80", "any".
 */
TG_API const char *tg_context_entry(const tg_context *ctx);

/**
 * Sets the number of CPU threads of later calls. Results have the same bits at any number, but the
 * bytes of workspace may differ: query them after this call.
 *
 *   num_threads  1 or more, or 0 for the default, which is read now: OMP_NUM_THREADS, else the CPUs
 *                that the process may run on, at most as many as its control group's CPU quota
 *
 * The calling thread is one of them; the others belong to the process and sleep between calls.
 * Calls run on the calling thread alone in a child process (fork) of one that had such threads, and
 * where the system starts no more. Errors: BAD_ARGUMENT (ctx is NULL, negative number).
 */
TG_API tg_status tg_context_set_num_threads(tg_context *ctx, int32_t num_threads);

/** Number of threads that CPU ops of this context use. */
TG_API int32_t tg_context_num_threads(const tg_context *ctx);

/** The version, such as "0.1.0". */
TG_API const char *tg_version(void);

#ifdef __cplusplus
}
#endif
#endif
