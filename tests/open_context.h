/** A context for a test of cmocka, which stands included before; fails the test if there is none.
 */
#ifndef TGI_TESTS_OPEN_CONTEXT_H
#define TGI_TESTS_OPEN_CONTEXT_H

#include "tegula/tegula.h"

static tg_context *open_context(tg_backend backend)
{
  const tg_context_options o = {.backend = backend, .num_threads = 1};
  tg_context *ctx = NULL;
  tg_error error;
  if (tg_context_create(&o, &ctx, &error) != TG_OK) {
    fail_msg("%s", error.text);
  }
  return ctx;
}

#endif
