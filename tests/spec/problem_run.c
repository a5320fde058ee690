/* Runs a problem and checks that nothing was touched but its outputs. */
#include "problem.h"
#include "problem_call.h"
#include "problem_device.h"

#include "core/device_state.h"
#include "core/values/half.h"
#include <stdlib.h>
#include <string.h>

#ifdef __has_feature /* clang's way to say what gcc says with a macro */
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

enum { kPoison = 0xff }; /* bytes of a NaN */

static void poison_outputs(problem *p)
{
  for (int v = 0; v < p->num_views; v++) {
    const tg_tensor *t = p->view[v].tensor;
    const size_t bytes = tg_dtype_bytes(t->dtype);
    if (p->view[v].slot->role != TG_ROLE_OUT || p->block[v].shared_with >= 0) {
      continue;
    }
    for (int64_t i = 0, n = tgi_numel(t); i < n; i++) {
      memset((char *)t->data + problem_offset(t, i) * (int64_t)bytes, kPoison, bytes);
    }
  }
}

static bool is_written(const problem *p, int v)
{
  /* A view that lives in another's block leaves its own alone. */
  bool written = p->view[v].slot->role != TG_ROLE_IN && p->block[v].shared_with < 0;
  for (int u = 0; u < p->num_views; u++) {
    written = written || p->block[u].shared_with == v;
  }
  return written;
}

/* Puts the old bytes of a written view's elements back into a copy, so that the rest must agree. */
static bool untouched(problem *p, int v)
{
  problem_block *b = &p->block[v];
  const tg_tensor *t = p->view[v].tensor;
  const int64_t bytes = (int64_t)tg_dtype_bytes(t->dtype);
  const int64_t start = (unsigned char *)t->data - b->base;
  for (int64_t i = 0, n = tgi_numel(t); i < n && is_written(p, v); i++) {
    const int64_t at = start + problem_offset(t, i) * bytes;
    memcpy(b->before + at, b->base + at, (size_t)bytes);
  }
  return memcmp(b->before, b->base, b->bytes) == 0;
}

bool problem_set_workspace(problem *p, void *memory, size_t bytes)
{
  const tg_op_info *info = p->shaped.info;
  bool has = false;
  for (size_t i = 0; i < info->num_slots; i++) {
    void *field = p->shaped.args.bytes + info->slots[i].offset;
    if (info->slots[i].kind == TG_KIND_WORKSPACE) {
      *(void **)field = memory;
      has = true;
    } else if (info->slots[i].kind == TG_KIND_SIZE) {
      *(size_t *)field = bytes;
    }
  }
  return has;
}

static void note(problem *p, const char *what, const char *name)
{
  free(p->failure);
  p->failure = problem_text("%s: %s", name, what);
}

/* The unused end of the room for tensor lists. */
static tg_tensor *end_of_lists(problem *p)
{
  tg_tensor *end = p->shaped.listed;
  for (int v = 0; v < p->num_views; v++) {
    if (p->view[v].index >= 0 && p->view[v].tensor >= end) {
      end = p->view[v].tensor + 1;
    }
  }
  return end;
}

/* Under the address sanitizer the call may not even read the guard bytes, or past a list. */
static void close_guards(problem *p, const unsigned char *workspace, size_t bytes)
{
  for (int v = 0; v < p->num_views; v++) {
    const problem_block *b = &p->block[v];
    unsigned char *start = p->view[v].tensor->data;
    unsigned char *end = start + tgi_span_bytes(p->view[v].tensor);
    if (b->shared_with < 0) {
      ASAN_POISON_MEMORY_REGION(b->base, (size_t)(start - b->base));
      ASAN_POISON_MEMORY_REGION(end, (size_t)(b->base + b->bytes - end));
    }
  }
  ASAN_POISON_MEMORY_REGION(workspace - PROBLEM_GUARD_BYTES, PROBLEM_GUARD_BYTES);
  ASAN_POISON_MEMORY_REGION(workspace + bytes, PROBLEM_GUARD_BYTES);
  tg_tensor *end = end_of_lists(p), *last = p->shaped.listed + TGI_SHAPE_MAX_LISTED;
  ASAN_POISON_MEMORY_REGION(end, (size_t)(last - end) * sizeof *end);
}

static void open_guards(problem *p, const unsigned char *workspace, size_t bytes)
{
  for (int v = 0; v < p->num_views; v++) {
    ASAN_UNPOISON_MEMORY_REGION(p->block[v].base, p->block[v].bytes);
  }
  ASAN_UNPOISON_MEMORY_REGION(workspace - PROBLEM_GUARD_BYTES, bytes + 2 * PROBLEM_GUARD_BYTES);
  ASAN_UNPOISON_MEMORY_REGION(p->shaped.listed, sizeof p->shaped.listed);
}

/* Runs the call; a host workspace is poisoned around by close_guards. */
static tg_status run_here(problem *p, tg_context *ctx, unsigned char *memory, size_t bytes)
{
  close_guards(p, memory + PROBLEM_GUARD_BYTES, bytes);
  const tg_status status = problem_call(p, ctx);
  open_guards(p, memory + PROBLEM_GUARD_BYTES, bytes);
  return status;
}

/* The workspace asked for: from shapes, dtypes, scalars and the context alone, so that views
 * without memory ask for the same. */
static tg_status size_workspace(problem *p, tg_context *ctx, size_t *bytes)
{
  const tg_op_info *info = p->shaped.info;
  void *data[PROBLEM_MAX_VIEWS];
  size_t without = 0;
  tg_status status = info->workspace(ctx, p->shaped.args.bytes, bytes);
  for (int v = 0; v < p->num_views; v++) {
    data[v] = p->view[v].tensor->data;
    p->view[v].tensor->data = NULL;
  }
  status = status ? status : info->workspace(ctx, p->shaped.args.bytes, &without);
  for (int v = 0; v < p->num_views; v++) {
    p->view[v].tensor->data = data[v];
  }
  if (status != TG_OK) {
    note(p, tg_context_message(ctx), "workspace query");
  } else if (without != *bytes) {
    note(p, "differs for views without memory", "workspace query");
    return TG_BAD_ARGUMENT;
  }
  return status;
}

tg_status problem_run(problem *p, tg_context *ctx)
{
  size_t bytes = 0;
  tg_status status = size_workspace(p, ctx, &bytes);
  if (status != TG_OK) {
    return status;
  }
  const size_t total = bytes + 2 * PROBLEM_GUARD_BYTES;
  unsigned char *memory = aligned_alloc(256, total / 256 * 256 + 256);
  memset(memory, PROBLEM_GUARD, PROBLEM_GUARD_BYTES);
  memset(memory + PROBLEM_GUARD_BYTES, kPoison, bytes);
  memset(memory + PROBLEM_GUARD_BYTES + bytes, PROBLEM_GUARD, PROBLEM_GUARD_BYTES);
  if (!problem_set_workspace(p, memory + PROBLEM_GUARD_BYTES, bytes) && bytes != 0) {
    note(p, "asks for a workspace, but its args have no room for one", "workspace query");
    status = TG_BAD_ARGUMENT;
  }
  poison_outputs(p);
  for (int v = 0; v < p->num_views; v++) {
    memcpy(p->block[v].before, p->block[v].base, p->block[v].bytes);
  }
  if (status == TG_OK) {
    status = ctx->device ? problem_run_on_device(p, ctx, memory, total)
                         : run_here(p, ctx, memory, bytes);
    if (status != TG_OK) {
      note(p, tg_context_message(ctx), "run");
    }
  }
  for (size_t i = 0; i < PROBLEM_GUARD_BYTES && status == TG_OK; i++) {
    if (memory[i] != PROBLEM_GUARD || memory[PROBLEM_GUARD_BYTES + bytes + i] != PROBLEM_GUARD) {
      note(p, "wrote outside of it", "workspace");
      status = TG_BAD_ARGUMENT;
    }
  }
  for (int v = 0; v < p->num_views && status == TG_OK; v++) {
    if (!untouched(p, v)) {
      note(p, "wrote to bytes that are not its output", p->view[v].slot->name);
      status = TG_BAD_ARGUMENT;
    }
  }
  problem_set_workspace(p, NULL, 0);
  free(memory);
  return status;
}
