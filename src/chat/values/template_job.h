/**
 * What the parse or the rendering of a template holds: memory, bounds, the place that messages
 * name, and the one way out when something fails.
 *
 * Templates come from strangers. So every node and loop is a step, long texts are more steps,
 * nesting is counted, and all memory comes from one arena with a bound. Nothing is freed before
 * the end, so that a failure can leave from any depth by a jump.
 */
#ifndef TGI_CHAT_VALUES_TEMPLATE_JOB_H
#define TGI_CHAT_VALUES_TEMPLATE_JOB_H

#include "tegula/chat_template.h"
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** From 1; columns count code points. Line 0: no place in the template. */
typedef struct tgi_place {
  uint32_t line, column;
} tgi_place;

/** Memory that is freed as a whole. Zeroed: none yet. */
typedef struct tgi_arena {
  struct tgi_arena_block *blocks; /* newest first */
  size_t bytes;                   /* of all blocks */
} tgi_arena;

void tgi_arena_free(tgi_arena *arena);

typedef struct tgi_job {
  const char *name; /* of the template, for messages */
  tgi_place place;  /* what is being read or evaluated */
  tgi_arena arena;
  int64_t steps;
  int depth;
  jmp_buf out; /* set by who owns the job, who then frees the arena */
  tg_status status;
  tg_error *error; /* NULL is allowed */
} tgi_job;

/**
 * Ends the job: `<name>: line <line>, column <column>: expected ..., got ...`, where the format
 * says "<rule>, got <value>".
 */
_Noreturn void tgi_job_fail(tgi_job *job, tg_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Zeroed memory, aligned for every type. Fails with NO_MEMORY, or UNSUPPORTED at the bound. */
void *tgi_job_allocate(tgi_job *job, size_t bytes);

/** A larger copy of a block of `old` bytes; extends the newest block in place. */
void *tgi_job_grow(tgi_job *job, void *block, size_t old, size_t bytes);

/** Counts one step, and more for `bytes` that are about to be read or copied. */
void tgi_job_step(tgi_job *job, size_t bytes);

/** Around whatever calls itself; fails at TG_CHAT_TEMPLATE_MAX_DEPTH. */
void tgi_job_enter(tgi_job *job);

static inline void tgi_job_leave(tgi_job *job)
{
  job->depth--;
}

#endif
