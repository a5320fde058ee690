/** What Hopper's kernels of linear_int8 decline; sm80 runs those calls. The kernels go by these
 * functions themselves, and the spec lists them. */
#ifndef TGI_OPS_LINEAR_INT8_REFUSALS_H
#define TGI_OPS_LINEAR_INT8_REFUSALS_H

#include "ops/kernels.h"
#include "ops/refusal_rules.h"

enum {
  TGI_INT8_TILES_ROWS = 129,        /* from which on a weight in rows is worth its making */
  TGI_INT8_TILES_COLUMNS = 1 << 16, /* up to which sums less zero points fit 32 bits */
  TGI_INT8_TILES_MOST = 1 << 29     /* rows of x and W */
};

static inline bool tgi_linear_int8_fwd_is_weight_only(const void *args)
{
  return ((const tg_linear_int8_fwd_args *)args)->mode != TG_INT8_DYNAMIC;
}

static inline bool tgi_linear_int8_fwd_has_few_rows(const void *args)
{
  return ((const tg_linear_int8_fwd_args *)args)->x.shape[0] < TGI_INT8_TILES_ROWS;
}

static inline bool tgi_linear_int8_fwd_is_empty(const void *args)
{
  return ((const tg_linear_int8_fwd_args *)args)->x.shape[1] == 0;
}

static inline bool tgi_linear_int8_fwd_has_long_rows(const void *args)
{
  return ((const tg_linear_int8_fwd_args *)args)->x.shape[1] > TGI_INT8_TILES_COLUMNS;
}

static inline bool tgi_linear_int8_fwd_has_no_vectors(const void *args)
{
  const tg_linear_int8_fwd_args *a = (const tg_linear_int8_fwd_args *)args;
  return (uintptr_t)a->weight.data % 16 != 0 || !tgi_any_rows_begin_at(&a->y, 16);
}

static inline bool tgi_linear_int8_fwd_is_large(const void *args)
{
  const tg_linear_int8_fwd_args *a = (const tg_linear_int8_fwd_args *)args;
  return a->x.shape[0] > TGI_INT8_TILES_MOST || a->y.shape[1] > TGI_INT8_TILES_MOST;
}

/** By shapes and mode alone: workspaces are sized before there is memory. */
static inline bool tgi_linear_int8_fwd_is_small_or_other(const tg_linear_int8_fwd_args *a)
{
  return tgi_linear_int8_fwd_is_weight_only(a) || tgi_linear_int8_fwd_has_few_rows(a) ||
         tgi_linear_int8_fwd_is_empty(a) || tgi_linear_int8_fwd_has_long_rows(a) ||
         tgi_linear_int8_fwd_is_large(a);
}

static inline bool tgi_linear_int8_fwd_refused(const tg_linear_int8_fwd_args *a)
{
  return tgi_linear_int8_fwd_is_small_or_other(a) || tgi_linear_int8_fwd_has_no_vectors(a);
}

#endif
