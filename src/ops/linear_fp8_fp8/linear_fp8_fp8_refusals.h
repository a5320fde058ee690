/** What Hopper's kernels of linear_fp8_fp8 decline; sm80 runs those calls. The kernels go by these
 * functions themselves, and the spec lists them. */
#ifndef TGI_OPS_LINEAR_FP8_FP8_REFUSALS_H
#define TGI_OPS_LINEAR_FP8_FP8_REFUSALS_H

#include "ops/kernels.h"
#include "ops/refusal_rules.h"

/* Of x that is quantised in the call the rows of the workspace count, which begin so. */
static inline bool tgi_linear_fp8_fp8_fwd_has_no_vectors(const void *args)
{
  const tg_linear_fp8_fp8_fwd_args *a = (const tg_linear_fp8_fp8_fwd_args *)args;
  return (a->x.dtype == TG_F8_E4M3 && !tgi_any_rows_begin_at(&a->x, 16)) ||
         !tgi_rows_begin_at(&a->weight, 16) || !tgi_any_rows_begin_at(&a->y, 16);
}

static inline bool tgi_linear_fp8_fp8_fwd_is_empty(const void *args)
{
  return ((const tg_linear_fp8_fp8_fwd_args *)args)->x.shape[1] == 0;
}

static inline bool tgi_linear_fp8_fp8_fwd_is_large(const void *args)
{
  const tg_linear_fp8_fp8_fwd_args *a = (const tg_linear_fp8_fp8_fwd_args *)args;
  const int64_t most = (int64_t)1 << 29;
  return a->x.shape[0] > most || a->x.shape[1] > most || a->y.shape[1] > most;
}

static inline bool tgi_linear_fp8_fp8_fwd_refused(const tg_linear_fp8_fp8_fwd_args *a)
{
  return tgi_linear_fp8_fp8_fwd_has_no_vectors(a) || tgi_linear_fp8_fp8_fwd_is_empty(a) ||
         tgi_linear_fp8_fp8_fwd_is_large(a);
}

#endif
