/** A pool of contexts for calls from any thread. Calls of one context share its memory, so a
 * context serves one call at a time and belongs to one stream. A call uses an idle context of its
 * device and stream, or creates one; the pool grows to the largest number of concurrent calls. */
#ifndef TGI_PYTHON_CONTEXT_POOL_H
#define TGI_PYTHON_CONTEXT_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <tegula/tegula.h>

typedef struct tgi_pooled_context {
  tg_context *ctx;
  tg_backend backend;
  int32_t device_index;
  void *stream;
  atomic_bool busy;    /* the members above are constant once the context is in the pool */
  int32_t num_threads; /* this and `overlaps` as last set, by the call that has the context */
  bool overlaps;
  struct tgi_pooled_context *next;
} tgi_pooled_context;

/** Prepared for the stream, with this number of CPU threads (0: the library's default). NULL with
 * *error filled on failure. */
tgi_pooled_context *tgi_context_take(tg_backend backend, int32_t device_index, void *stream,
                                     int32_t num_threads, tg_error *error);

void tgi_context_give_back(tgi_pooled_context *context);

/** tg_context_allow_overlap on every context that is taken from then on. Returns what held before;
 * initially false. */
bool tgi_context_allow_overlap(bool allow);

/** Waits for the work of every idle context and reports the first data error that a kernel
 * recorded.
 */
tg_status tgi_context_check_all(tg_error *error);

/** tg_context_load_kernels on a GPU. */
tg_status tgi_context_load_kernels(int32_t device_index, int64_t *found, int64_t *loaded,
                                   tg_error *error);

/** tg_tune_begin or tg_tune_end on the context that the next call on the GPU's stream will use. */
tg_status tgi_context_tune(int32_t device_index, void *stream, bool begins, int64_t *measured,
                           tg_error *error);

#endif
