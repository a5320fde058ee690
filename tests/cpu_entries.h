/** A context of each entry of this machine's CPU chain, for tests that run on all of them. */
#ifndef TEGULA_TESTS_CPU_ENTRIES_H
#define TEGULA_TESTS_CPU_ENTRIES_H

#include "ops/chain.h"
#include <stdio.h>
#include <stdlib.h>

typedef struct cpu_entries {
  tg_context *ctx[TGI_CHAIN_MAX];
  int count;
} cpu_entries;

/** Contexts with `threads` threads; one that cannot be made ends the test program. */
static inline cpu_entries open_cpu_entries(int threads)
{
  cpu_entries e = {.count = 0};
  const tgi_processor processor = tgi_processor_detect();
  const tgi_chain chain = tgi_chain_of(TG_BACKEND_CPU, &processor, NULL);
  for (int i = 0; i < chain.length; i++) {
    const tg_context_options o = {
        .backend = TG_BACKEND_CPU, .num_threads = threads, .entry = chain.entry[i]};
    tg_error error;
    if (tg_context_create(&o, &e.ctx[e.count++], &error) != TG_OK) {
      fprintf(stderr, "%s\n", error.text);
      abort();
    }
  }
  return e;
}

static inline void close_cpu_entries(cpu_entries *e)
{
  for (int i = 0; i < e->count; i++) {
    tg_context_destroy(e->ctx[i]);
  }
}

/** The same with all processors' threads as the group setup and teardown of cmocka. */
static inline int open_entries(void **state)
{
  static cpu_entries e;
  e = open_cpu_entries(0);
  *state = &e;
  return 0;
}

static inline int close_entries(void **state)
{
  close_cpu_entries(*state);
  return 0;
}

#endif
