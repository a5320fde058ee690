/** Inside of a context: what ops and kernels read. Constant during a call but for the message. */
#ifndef TGI_CORE_CONTEXT_STATE_H
#define TGI_CORE_CONTEXT_STATE_H

#include "core/error_record.h"
#include "core/machine/processor.h"
#include "core/machine/threads.h"
#include "tegula/context.h"
#include "tegula/op_info.h"

struct tgi_kernel_table;              /* ops/kernels.h */
typedef struct tgi_device tgi_device; /* core/device_state.h */

enum { TGI_CHAIN_MAX = 4 };

/** Kernel tables in the order in which an op tries them. */
typedef struct tgi_chain {
  const struct tgi_kernel_table *table[TGI_CHAIN_MAX];
  const char *entry[TGI_CHAIN_MAX]; /* name of each table */
  int length;
  /* Writes one line: how the first kernel that takes a call would run it. For `tegula explain`,
   * which has no other way to what the library keeps to itself. */
  void (*explain)(const tg_context *ctx, const tg_op_info *info, const void *args, char *text,
                  size_t bytes);
} tgi_chain;

typedef struct tgi_message {
  char text[512];
} tgi_message;

struct tg_context {
  tg_backend backend;
  int num_threads;
  tgi_chain chain;
  tgi_processor processor;
  tgi_device *device;   /* of a CUDA context; NULL otherwise */
  tgi_message *message; /* its own block, so that a const context can still report */
};

/** Stores a message (printf format) and returns `status`. */
tg_status tgi_report(const tg_context *ctx, tg_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** parallel_for on the context's threads; see core/machine/threads.h. */
static inline void tgi_for(const tg_context *ctx, int64_t n, int64_t grain, tgi_loop_body *body,
                           void *arg)
{
  tgi_parallel_for(ctx->num_threads, n, grain, body, arg);
}

/** True if `bytes` written by one call would not stay in the caches: worth a streaming store. */
bool tgi_exceeds_cache(const tg_context *ctx, size_t bytes);

#endif
