/** Assertions on what an op of a context returned, and its message. After cmocka.h. */
#ifndef TEGULA_TESTS_EXPECT_OP_H
#define TEGULA_TESTS_EXPECT_OP_H

#include "tegula/context.h"
#include <string.h>

static inline void must_run(const tg_context *ctx, tg_status status)
{
  if (status != TG_OK) {
    fail_msg("expected OK, got %s: %s", tg_status_name(status), tg_context_message(ctx));
  }
}

/** The status and the whole message. */
static inline void must_fail(const tg_context *ctx, tg_status got, tg_status wanted,
                             const char *message)
{
  if (got != wanted || strcmp(tg_context_message(ctx), message) != 0) {
    fail_msg("expected %s and \"%s\", got %s and \"%s\"", tg_status_name(wanted), message,
             tg_status_name(got), tg_context_message(ctx));
  }
}

#endif
