/** The rows of none of the experts, on the CPU. */
#ifndef TGI_OPS_GROUPED_CLEARING_H
#define TGI_OPS_GROUPED_CLEARING_H

#include "core/context_state.h"
#include "ops/grouped_linear/grouped_rows.h"

enum { kClearBytes = 128 << 10 };

/* Rows of a tensor from `first` on. */
typedef struct clearing {
  const tg_tensor *t;
  int64_t first;
} clearing;

static inline void clear_rows(void *arg, int64_t begin, int64_t end, int thread)
{
  const clearing *c = arg;
  const size_t bytes = (size_t)c->t->shape[1] * tg_dtype_bytes(c->t->dtype);
  (void)thread;
  for (int64_t r = begin; r < end; r++) {
    memset(tgi_row(c->t, c->first + r), 0, bytes);
  }
}

/** Zeros in the rows that no expert has. */
static inline void clear_rest(const tg_context *ctx, const tg_tensor *t, const grouped_rows *g)
{
  clearing c = {t, first_row(g, g->experts)};
  const int64_t row_bytes = t->shape[1] * (int64_t)tg_dtype_bytes(t->dtype);
  if (row_bytes > 0) {
    tgi_for(ctx, g->rows - c.first, 1 + kClearBytes / row_bytes, clear_rows, &c);
  }
}

#endif
