/** What Hopper's kernels of linear_int8 decline; sm80 runs those calls. The kernels go by these
 * functions themselves, and the spec lists them. */
#ifndef TGI_OPS_LINEAR_INT8_REFUSALS_H
#define TGI_OPS_LINEAR_INT8_REFUSALS_H

#include "ops/kernels.h"
#include "ops/quantised_refusals.h"

enum {
  TGI_INT8_TILES_ROWS = 129,        /* from which on a weight in rows is worth its making */
  TGI_INT8_TILES_COLUMNS = 1 << 16, /* up to which sums less zero points fit 32 bits */
  TGI_INT8_TILES_MOST = 1 << 29     /* rows of x and W */
};

TGI_QUANTISED_RULES(linear_int8, a->mode != TG_INT8_DYNAMIC)
TGI_QUANTISED_REFUSED(linear_int8, a->mode != TG_INT8_DYNAMIC)

/* Of the dynamic mode. */
TGI_QUANTISED_RULE(linear_int8, few_rows,
                   a->mode == TG_INT8_DYNAMIC && a->x.shape[0] < TGI_INT8_TILES_ROWS)
TGI_QUANTISED_RULE(linear_int8, is_empty, a->mode == TG_INT8_DYNAMIC && a->x.shape[1] == 0)
TGI_QUANTISED_RULE(linear_int8, long_rows,
                   a->mode == TG_INT8_DYNAMIC && a->x.shape[1] > TGI_INT8_TILES_COLUMNS)
TGI_QUANTISED_RULE(linear_int8, no_tile_vectors,
                   a->mode == TG_INT8_DYNAMIC &&
                       ((uintptr_t)a->weight.data % 16 != 0 || !tgi_any_rows_begin_at(&a->y, 16)))
TGI_QUANTISED_RULE(linear_int8, is_large,
                   a->mode == TG_INT8_DYNAMIC &&
                       (a->x.shape[0] > TGI_INT8_TILES_MOST || a->y.shape[1] > TGI_INT8_TILES_MOST))

/** By shapes and mode alone: workspaces are sized before there is memory. */
static inline bool tgi_linear_int8_fwd_is_small_or_other(const tg_linear_int8_fwd_args *a)
{
  return a->mode != TG_INT8_DYNAMIC || tgi_linear_int8_fwd_few_rows(a) ||
         tgi_linear_int8_fwd_is_empty(a) || tgi_linear_int8_fwd_long_rows(a) ||
         tgi_linear_int8_fwd_is_large(a);
}

static inline bool tgi_linear_int8_fwd_tiles_refused(const tg_linear_int8_fwd_args *a)
{
  return tgi_linear_int8_fwd_is_small_or_other(a) || tgi_linear_int8_fwd_no_tile_vectors(a);
}

#endif
