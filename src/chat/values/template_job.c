#include "template_job.h"
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kBlockBytes = 32 << 10, kBytesPerStep = 64 };

typedef struct tgi_arena_block {
  struct tgi_arena_block *older;
  size_t used, size;
  alignas(max_align_t) char bytes[];
} tgi_arena_block;

void tgi_arena_free(tgi_arena *arena)
{
  for (tgi_arena_block *block = arena->blocks; block;) {
    tgi_arena_block *older = block->older;
    free(block);
    block = older;
  }
  *arena = (tgi_arena){0};
}

void tgi_job_fail(tgi_job *job, tg_status status, const char *format, ...)
{
  job->status = status;
  if (job->error) {
    char rule[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(rule, sizeof rule, format, arguments);
    va_end(arguments);
    const size_t size = strlen(job->name);
    const char *tail = size > 60 ? job->name + size - 60 : job->name;
    char place[64] = "";
    if (job->place.line > 0) {
      snprintf(place, sizeof place, ": line %u, column %u", job->place.line, job->place.column);
    }
    job->error->status = status;
    snprintf(job->error->text, sizeof job->error->text, "%s%s%s: expected %s",
             tail == job->name ? "" : "...", tail, place, rule);
  }
  longjmp(job->out, 1);
}

static size_t rounded(size_t bytes)
{
  const size_t unit = alignof(max_align_t);
  return (bytes + unit - 1) / unit * unit;
}

static _Noreturn void fail_at_bound(tgi_job *job)
{
  tgi_job_fail(job, TG_UNSUPPORTED, "at most %d bytes of values and text, got more",
               TG_CHAT_TEMPLATE_MAX_MEMORY);
}

static tgi_arena_block *add_block(tgi_job *job, size_t bytes)
{
  tgi_arena *arena = &job->arena;
  const size_t size = bytes > kBlockBytes ? bytes : kBlockBytes;
  if (size > TG_CHAT_TEMPLATE_MAX_MEMORY - arena->bytes) {
    fail_at_bound(job);
  }
  tgi_arena_block *block = calloc(1, sizeof *block + size);
  if (!block) {
    tgi_job_fail(job, TG_NO_MEMORY, "%zu bytes of memory, got none", size);
  }
  block->size = size;
  arena->bytes += size;
  /* A large block has no room left: the one before it may have. */
  if (arena->blocks && bytes > kBlockBytes / 4) {
    block->older = arena->blocks->older;
    arena->blocks->older = block;
  } else {
    block->older = arena->blocks;
    arena->blocks = block;
  }
  return block;
}

void *tgi_job_allocate(tgi_job *job, size_t bytes)
{
  if (bytes > TG_CHAT_TEMPLATE_MAX_MEMORY) {
    fail_at_bound(job);
  }
  const size_t size = rounded(bytes);
  tgi_arena_block *block = job->arena.blocks;
  if (!block || size > block->size - block->used) {
    block = add_block(job, size);
  }
  char *start = block->bytes + block->used;
  block->used += size;
  return start;
}

void *tgi_job_grow(tgi_job *job, void *block, size_t old, size_t bytes)
{
  tgi_arena_block *newest = job->arena.blocks;
  if (block && newest && (char *)block + rounded(old) == newest->bytes + newest->used &&
      rounded(bytes) - rounded(old) <= newest->size - newest->used) {
    newest->used += rounded(bytes) - rounded(old);
    return block;
  }
  void *larger = tgi_job_allocate(job, bytes);
  if (old > 0) {
    memcpy(larger, block, old);
  }
  return larger;
}

void tgi_job_step(tgi_job *job, size_t bytes)
{
  job->steps += 1 + (int64_t)(bytes / kBytesPerStep);
  if (job->steps > TG_CHAT_TEMPLATE_MAX_STEPS) {
    tgi_job_fail(job, TG_UNSUPPORTED, "an end after at most %d steps, got more",
                 TG_CHAT_TEMPLATE_MAX_STEPS);
  }
}

void tgi_job_enter(tgi_job *job)
{
  if (++job->depth > TG_CHAT_TEMPLATE_MAX_DEPTH) {
    tgi_job_fail(job, TG_UNSUPPORTED, "at most %d levels of nesting, got more",
                 TG_CHAT_TEMPLATE_MAX_DEPTH);
  }
}
