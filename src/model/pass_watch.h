/** Who is told what a pass does: for marks in a profiler's timeline, and for the times of ops. */
#ifndef TGI_MODEL_PASS_WATCH_H
#define TGI_MODEL_PASS_WATCH_H

#include "tegula/op_info.h"

typedef struct tgi_pass_watch {
  void *user;
  /** A part begins ("pass", "layer 3", "head"); parts lie in each other. */
  void (*begin)(void *user, const char *part);
  void (*end)(void *user);
  /** Runs an op in the place of op->run, once at least, and returns its status. */
  tg_status (*run)(void *user, tg_context *ctx, const tg_op_info *op, const void *args);
} tgi_pass_watch;

/** "layer 3" */
void tgi_watch_begin_layer(const tgi_pass_watch *watch, int index);

/** NULL is allowed: nobody watches. */
static inline void tgi_watch_begin(const tgi_pass_watch *watch, const char *part)
{
  if (watch) {
    watch->begin(watch->user, part);
  }
}

static inline void tgi_watch_end(const tgi_pass_watch *watch)
{
  if (watch) {
    watch->end(watch->user);
  }
}

#endif
