/** One call of sample_fwd with exactly the workspace that it asks for. After cmocka.h. */
#ifndef TGI_TESTS_SAMPLE_CALL_H
#define TGI_TESTS_SAMPLE_CALL_H

#include "expect_op.h"
#include "tegula/tegula.h"
#include <stdlib.h>

static inline tg_status sample(tg_context *ctx, tg_sample_fwd_args a)
{
  size_t bytes = 0;
  must_run(ctx, tg_sample_fwd_workspace(ctx, &a, &bytes));
  a.workspace = aligned_alloc(256, bytes);
  a.workspace_bytes = bytes;
  const tg_status status = tg_sample_fwd(ctx, &a);
  free(a.workspace);
  return status;
}

#endif
