/** What Hopper's kernels of linear_swiglu decline; sm80 runs those calls. The kernels go by these
 * functions themselves, and the spec lists them. */
#ifndef TGI_OPS_LINEAR_SWIGLU_REFUSALS_H
#define TGI_OPS_LINEAR_SWIGLU_REFUSALS_H

#include "cuda/gemm/gemm_problem.h"
#include "ops/kernels.h"
#include "ops/refusal_rules.h"

static inline bool tgi_linear_swiglu_has_f32(const void *args)
{
  const tg_linear_swiglu_fwd_args *a = (const tg_linear_swiglu_fwd_args *)args;
  return a->x.dtype == TG_F32 || a->gate_weight.dtype == TG_F32;
}

static inline bool tgi_linear_swiglu_has_no_vectors(const void *args)
{
  const tg_linear_swiglu_fwd_args *a = (const tg_linear_swiglu_fwd_args *)args;
  return a->x.shape[1] % 8 != 0 || !tgi_any_rows_begin_at(&a->x, 16) ||
         !tgi_rows_begin_at(&a->gate_weight, 16) || !tgi_rows_begin_at(&a->up_weight, 16);
}

/** Whether up to 64 rows are two products of few rows. */
static inline bool tgi_linear_swiglu_has_few_rows(const tg_linear_swiglu_fwd_args *a)
{
  return a->x.shape[0] <= TGI_GEMM_FEW_ROWS;
}

/** Whether more rows have few tiles of 128 rows and 96 columns of y. */
static inline bool tgi_linear_swiglu_is_small(const void *args)
{
  enum { kTileM = 128, kTileN = 96, kFewTiles = 128 }; /* an H200 has 132 multiprocessors */
  const tg_linear_swiglu_fwd_args *a = (const tg_linear_swiglu_fwd_args *)args;
  const int64_t row_tiles = (a->y.shape[0] + kTileM - 1) / kTileM;
  const int64_t column_tiles = (a->y.shape[1] + kTileN - 1) / kTileN;
  return !tgi_linear_swiglu_has_few_rows(a) && row_tiles * column_tiles < kFewTiles;
}

static inline bool tgi_linear_swiglu_has_no_result_vectors(const void *args)
{
  const tg_linear_swiglu_fwd_args *a = (const tg_linear_swiglu_fwd_args *)args;
  return !tgi_linear_swiglu_has_few_rows(a) &&
         (a->y.shape[1] % 8 != 0 || !tgi_rows_begin_at(&a->y, 16) ||
          (tgi_present(&a->gate) &&
           (!tgi_rows_begin_at(&a->gate, 16) || !tgi_rows_begin_at(&a->up, 16))));
}

static inline bool tgi_linear_swiglu_is_empty(const void *args)
{
  return ((const tg_linear_swiglu_fwd_args *)args)->x.shape[1] == 0;
}

static inline bool tgi_linear_swiglu_fwd_refused(const tg_linear_swiglu_fwd_args *a)
{
  return tgi_linear_swiglu_has_f32(a) || tgi_linear_swiglu_has_no_vectors(a) ||
         tgi_linear_swiglu_is_small(a) || tgi_linear_swiglu_has_no_result_vectors(a) ||
         tgi_linear_swiglu_is_empty(a);
}

#endif
