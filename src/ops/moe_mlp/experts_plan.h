/** The plan of moe_mlp: its ranges, and what a row belongs to. For the CPU kernels and the
 * reference. */
#ifndef TGI_OPS_EXPERTS_PLAN_H
#define TGI_OPS_EXPERTS_PLAN_H

#include "ops/grouped_linear/grouped_rows.h"

/** offsets and slot of an args struct. */
#define EXPERTS_ROWS(a)                                                                            \
  (grouped_rows)                                                                                   \
  {                                                                                                \
    &(a)->offsets, &(a)->slot, (a)->gate_up.shape[0], (a)->slot.shape[0], (a)->x.shape[0],         \
        (a)->row.shape[1]                                                                          \
  }

/** Row of expert j of token t; -1: none. */
static inline int64_t row_of_slot(const tg_tensor *row, int64_t t, int64_t j)
{
  return ((const int32_t *)tgi_row(row, t))[j];
}

/** The expert of row r, which an expert has: the last whose first row is not above r. */
static inline int64_t expert_of_row(const grouped_rows *g, int64_t r)
{
  int64_t low = 0, high = g->experts; /* first_row(low) <= r < first_row(high) */
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (first_row(g, middle) <= r) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/** OK, or BAD_ARGUMENT with a message that names the first index out of range. */
static inline tg_status check_plan(const tg_context *ctx, const char *op, const grouped_rows *g,
                                   const tg_tensor *row)
{
  const tg_status status = check_rows(ctx, op, g);
  for (int64_t t = 0; t < row->shape[0] && status == TG_OK; t++) {
    for (int64_t j = 0; j < row->shape[1]; j++) {
      const int64_t r = row_of_slot(row, t, j);
      if (r < -1 || r >= g->rows) {
        return tgi_report(ctx, TG_BAD_ARGUMENT,
                          "%s: row[%lld, %lld]: expected -1 to %lld, got %lld", op, (long long)t,
                          (long long)j, (long long)g->rows - 1, (long long)r);
      }
    }
  }
  return status;
}

#endif
