#define _DEFAULT_SOURCE /* madvise, MAP_NORESERVE */
#include "array_stack.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

enum {
  kHugePage = 2 << 20,   /* bytes */
  kStagger = 17 * 64,    /* bytes between the starts of neighbours, modulo a page */
  kStaggerPeriod = 1000, /* arrays; below kHugePage / kStagger */
};

/* "MemAvailable: N kB", less a sixteenth for everything else. */
static size_t available_bytes(void)
{
  FILE *f = fopen("/proc/meminfo", "re");
  char line[128];
  unsigned long long kib = 0;
  while (f && fgets(line, sizeof line, f)) {
    if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) {
      break;
    }
  }
  if (f) {
    fclose(f);
  }
  return (size_t)kib * 960;
}

bool array_stack_open(array_stack *s)
{
  *s = (array_stack){.size = available_bytes() / kHugePage * kHugePage};
  if (s->size == 0) {
    return false;
  }
  void *base = mmap(NULL, s->size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return false;
  }
  (void)madvise(base, s->size, MADV_HUGEPAGE);
  s->base = base;
  return true;
}

void array_stack_close(array_stack *s)
{
  if (s->base) {
    munmap(s->base, s->size);
  }
  *s = (array_stack){.base = NULL};
}

void *array_stack_take(array_stack *s, size_t bytes)
{
  const size_t page = kHugePage;
  const size_t start = (s->used + page - 1) / page * page;
  const size_t shift = (size_t)(s->count % kStaggerPeriod) * kStagger;
  if (bytes > s->size || start + shift > s->size - bytes) {
    return NULL;
  }
  s->used = start + shift + bytes;
  s->count++;
  return s->base + start + shift;
}

void array_stack_release(array_stack *s, const array_stack *mark)
{
  s->used = mark->used;
  s->count = mark->count;
}
