/** Contexts on every entry of this GPU's chain, for tests of attention; what they give is held
 * against the CPU in f32. */
#ifndef TEGULA_TESTS_ATTENTION_ENTRIES_H
#define TEGULA_TESTS_ATTENTION_ENTRIES_H

#include "attention_call.h"

enum { kMaxEntries = 3, kMaxFailures = 10 };

typedef struct attention_entries {
  tg_context *cpu, *entry[kMaxEntries];
  int entries, failures;
} attention_entries;

/** NULL: the GPU or the build has no such entry. */
tg_context *attention_gpu_context(const char *entry);

/** Of a group of tests; without a GPU there are no entries. */
int attention_set_up(void **state);
int attention_tear_down(void **state);

/** With no failures yet. Skips the test without a GPU. */
attention_entries *attention_entries_of(void **state);

/** Runs a call on every entry; the test fails when too many differ. */
void attention_check(attention_entries *f, const attention_config *c);

#endif
