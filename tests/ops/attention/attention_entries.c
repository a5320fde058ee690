#include "attention_entries.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

tg_context *attention_gpu_context(const char *entry)
{
  const tg_context_options o = {.backend = TG_BACKEND_CUDA, .entry = entry};
  tg_context *ctx = NULL;
  return tg_context_create(&o, &ctx, NULL) == TG_OK ? ctx : NULL;
}

int attention_set_up(void **state)
{
  static const char *const names[kMaxEntries] = {"sm90", "sm80", "any"};
  static attention_entries f;
  tg_device_info info;
  const tg_context_options cpu = {.backend = TG_BACKEND_CPU};
  *state = &f;
  if (tg_device_count() == 0 || tg_device_get_info(0, &info, NULL) != TG_OK || !info.supported) {
    return 0;
  }
  for (int e = 0; e < kMaxEntries; e++) { /* not every one is of this GPU and build */
    f.entry[f.entries] = attention_gpu_context(names[e]);
    f.entries += f.entry[f.entries] != NULL;
  }
  return f.entries > 0 && tg_context_create(&cpu, &f.cpu, NULL) == TG_OK ? 0 : -1;
}

int attention_tear_down(void **state)
{
  attention_entries *f = *state;
  for (int e = 0; e < f->entries; e++) {
    tg_context_destroy(f->entry[e]);
  }
  tg_context_destroy(f->cpu);
  return 0;
}

attention_entries *attention_entries_of(void **state)
{
  attention_entries *f = *state;
  if (f->entries == 0) {
    skip();
  }
  f->failures = 0;
  return f;
}

void attention_check(attention_entries *f, const attention_config *c)
{
  attention_call a;
  attention_call_make(&a, c);
  attention_expect(&a, f->cpu);
  for (int e = 0; e < f->entries; e++) {
    f->failures += !attention_agrees(&a, f->entry[e]);
  }
  attention_call_free(&a);
  if (f->failures >= kMaxFailures) {
    fail_msg("%d calls differ; the rest is left out", f->failures);
  }
}
