/** Contexts on every entry of the CPU's chain, and on what a processor without VPDPBUSD would run.
 */
#ifndef TEGULA_TESTS_EVERY_ENTRY_H
#define TEGULA_TESTS_EVERY_ENTRY_H

#include "ops/chain.h"

enum { EVERY_ENTRY_MAX = 3 * (TGI_CHAIN_MAX + 1) };

typedef struct every_entry {
  tg_context *ctx[EVERY_ENTRY_MAX]; /* with 1, 2 and 3 threads each */
  int count;
} every_entry;

static inline int every_entry_open(every_entry *e)
{
  const tgi_processor processor = tgi_processor_detect();
  const tgi_chain chain = tgi_chain_of(TG_BACKEND_CPU, &processor, NULL);
  e->count = 0;
  for (int i = 0; i < chain.length + (processor.avx512_vnni ? 1 : 0); i++) {
    const bool without = i == chain.length;
    for (int threads = 1; threads <= 3; threads++) {
      const tg_context_options o = {
          .backend = TG_BACKEND_CPU, .num_threads = threads, .entry = chain.entry[without ? 0 : i]};
      tg_context **ctx = &e->ctx[e->count++];
      if (tg_context_create(&o, ctx, NULL) != TG_OK) {
        return -1;
      }
      (*ctx)->processor.avx512_vnni = !without && processor.avx512_vnni;
    }
  }
  return 0;
}

static inline void every_entry_close(every_entry *e)
{
  for (int i = 0; i < e->count; i++) {
    tg_context_destroy(e->ctx[i]);
  }
}

#endif
