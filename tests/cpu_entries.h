/** A context for every entry of the processor's chain: the state of tests that try them all. */
#ifndef TGI_TESTS_CPU_ENTRIES_H
#define TGI_TESTS_CPU_ENTRIES_H

#include "core/context_state.h"

typedef struct cpu_entries {
  tg_context *ctx[TGI_CHAIN_MAX];
  int count;
} cpu_entries;

/** Group setup and teardown of cmocka. */
static inline int open_entries(void **state)
{
  static cpu_entries f;
  const tgi_processor processor = tgi_processor_detect();
  const tgi_chain chain = tgi_registry_chain(TG_BACKEND_CPU, &processor);
  for (f.count = 0; f.count < chain.length; f.count++) {
    const tg_context_options o = {.backend = TG_BACKEND_CPU, .entry = chain.entry[f.count]};
    if (tg_context_create(&o, &f.ctx[f.count], NULL) != TG_OK) {
      return -1;
    }
  }
  *state = &f;
  return 0;
}

static inline int close_entries(void **state)
{
  cpu_entries *f = *state;
  for (int e = 0; e < f->count; e++) {
    tg_context_destroy(f->ctx[e]);
  }
  return 0;
}

#endif
