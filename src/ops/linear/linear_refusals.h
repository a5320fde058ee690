/** What Hopper's kernel of linear's forward declines; sm80 runs those calls. The kernel goes by
 * these functions itself, and the spec lists them. */
#ifndef TGI_OPS_LINEAR_REFUSALS_H
#define TGI_OPS_LINEAR_REFUSALS_H

#include "cuda/gemm/gemm_problem.h"
#include "ops/kernels.h"
#include "ops/refusal_rules.h"

static inline bool tgi_linear_fwd_has_f32(const void *args)
{
  const tg_linear_fwd_args *a = (const tg_linear_fwd_args *)args;
  return a->x.dtype == TG_F32 || a->weight.dtype == TG_F32;
}

static inline bool tgi_linear_fwd_has_rows(const void *args)
{
  return ((const tg_linear_fwd_args *)args)->x.shape[0] > TGI_GEMM_FEW_ROWS;
}

static inline bool tgi_linear_fwd_has_no_vectors(const void *args)
{
  const tg_linear_fwd_args *a = (const tg_linear_fwd_args *)args;
  return a->x.shape[1] % 8 != 0 || !tgi_any_rows_begin_at(&a->x, 16) ||
         !tgi_rows_begin_at(&a->weight, 16);
}

static inline bool tgi_linear_fwd_is_empty(const void *args)
{
  return ((const tg_linear_fwd_args *)args)->x.shape[1] == 0;
}

static inline bool tgi_linear_fwd_refused(const tg_linear_fwd_args *a)
{
  return tgi_linear_fwd_has_f32(a) || tgi_linear_fwd_has_rows(a) ||
         tgi_linear_fwd_has_no_vectors(a) || tgi_linear_fwd_is_empty(a);
}

#endif
