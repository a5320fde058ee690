/** Rows and slots of combine: their ranges, and what they name. For its kernels and reference. */
#ifndef TGI_OPS_COMBINE_ROWS_H
#define TGI_OPS_COMBINE_ROWS_H

#include "core/values/half.h"
#include "ops/kernels.h"

/** Row of y of expert j of token t; -1: none. */
static inline int64_t slot_row(const tg_tensor *row, int64_t t, int64_t j)
{
  return tgi_load_int(tgi_row(row, t), row->dtype, j);
}

/** OK, or BAD_ARGUMENT with a message that names the first element outside -1 .. rows - 1. */
static inline tg_status check_rows(const tg_context *ctx, const char *op, const tg_tensor *row,
                                   int64_t rows)
{
  for (int64_t t = 0; t < row->shape[0]; t++) {
    for (int64_t j = 0; j < row->shape[1]; j++) {
      const int64_t r = slot_row(row, t, j);
      if (r < -1 || r >= rows) {
        return tgi_report(ctx, TG_BAD_ARGUMENT,
                          "%s: row[%lld, %lld]: expected -1 to %lld, got %lld", op, (long long)t,
                          (long long)j, (long long)rows - 1, (long long)r);
      }
    }
  }
  return TG_OK;
}

static inline tg_status check_combine_bwd(const tg_context *ctx, const tg_moe_combine_bwd_args *a)
{
  const bool dy = tgi_present(&a->dy);
  const int64_t rows = dy ? a->dy.shape[0] : a->y.shape[0], slots = tgi_numel(&a->row);
  const tg_status status = check_rows(ctx, "moe_combine_bwd", &a->row, rows);
  for (int64_t r = 0; r < rows && dy && status == TG_OK; r++) {
    const int32_t s = ((const int32_t *)a->slot.data)[r];
    if (s < 0 || s >= slots) {
      return tgi_report(ctx, TG_BAD_ARGUMENT,
                        "moe_combine_bwd: slot[%lld]: expected 0 to %lld, got %lld", (long long)r,
                        (long long)slots - 1, (long long)s);
    }
  }
  return status;
}

static inline double slot_weight(const tg_tensor *weights, int64_t t, int64_t j)
{
  return tgi_present(weights) ? tgi_load(tgi_row(weights, t), weights->dtype, j) : 1;
}

#endif
