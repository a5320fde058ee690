/** Rows of experts in the calls of grouped_linear_mxfp4. For the op's checks, its reference and its
 * CPU kernels. */
#ifndef TGI_OPS_GROUPED_MXFP4_ROWS_H
#define TGI_OPS_GROUPED_MXFP4_ROWS_H

#include "ops/grouped_linear/grouped_rows.h"

static inline grouped_rows rows_of_mxfp4_fwd(const tg_grouped_linear_mxfp4_fwd_args *a)
{
  return (grouped_rows){
      &a->offsets,   &a->slot,        a->offsets.shape[0] - 1, count_rows(&a->x, &a->slot),
      a->x.shape[0], a->slots_per_row};
}

static inline grouped_rows rows_of_mxfp4_bwd(const tg_grouped_linear_mxfp4_bwd_args *a)
{
  static const tg_tensor none; /* dx has a row for each row of dy */
  return (grouped_rows){&a->offsets,    &none,          a->offsets.shape[0] - 1,
                        a->dy.shape[0], a->dy.shape[0], 0};
}

/** Rows of an expert's weight, twice the columns of y with an activation. */
static inline int64_t outputs_of_mxfp4(const tg_grouped_linear_mxfp4_fwd_args *a)
{
  int64_t out;
  if (a->activation == TG_GATED_NONE) {
    return a->y.shape[1];
  }
  return __builtin_mul_overflow(a->y.shape[1], 2, &out) ? INT64_MAX : out;
}

#endif
