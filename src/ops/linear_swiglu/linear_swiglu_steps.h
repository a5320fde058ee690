/**
 * linear_swiglu as calls of other ops, for the CPU and CUDA: gate into its own tensor or y, up into
 * its own or the workspace, then the activation. The layers' workspace follows up's; without
 * memory, while the workspace is sized, what lies there has none.
 */
#ifndef TGI_OPS_LINEAR_SWIGLU_STEPS_H
#define TGI_OPS_LINEAR_SWIGLU_STEPS_H

#include "ops/kernels.h"

typedef struct linear_swiglu_steps {
  tg_linear_fwd_args gate, up;
  tg_swiglu_fwd_args act;
  size_t bytes; /* of the workspace, before the layers' own */
} linear_swiglu_steps;

linear_swiglu_steps tgi_linear_swiglu_steps(const tg_linear_swiglu_fwd_args *a);

#ifdef TGI_ENTRY
/* The entry sm90 has no kernel of swiglu: it takes that of sm80. */
#if defined(TGI_VIRTUAL) && TGI_VIRTUAL >= 90
#define TGI_SWIGLU_KERNEL TGI_JOIN(swiglu_fwd, run, sm80)
tg_status TGI_SWIGLU_KERNEL(const tg_context *ctx, const tg_swiglu_fwd_args *args);
#else
#define TGI_SWIGLU_KERNEL TGI_KERNEL(swiglu_fwd)
#endif

static inline size_t linear_swiglu_bytes(const tg_context *ctx, const tg_linear_swiglu_fwd_args *a)
{
  const linear_swiglu_steps s = tgi_linear_swiglu_steps(a);
  const size_t gate = TGI_WORKSPACE(linear_fwd)(ctx, &s.gate);
  const size_t up = TGI_WORKSPACE(linear_fwd)(ctx, &s.up);
  return s.bytes + (gate > up ? gate : up);
}

static inline tg_status linear_swiglu_in_steps(const tg_context *ctx,
                                               const tg_linear_swiglu_fwd_args *a)
{
  const linear_swiglu_steps s = tgi_linear_swiglu_steps(a);
  tg_status status = TGI_KERNEL(linear_fwd)(ctx, &s.gate);
  if (status == TG_OK) {
    status = TGI_KERNEL(linear_fwd)(ctx, &s.up);
  }
  return status == TG_OK ? TGI_SWIGLU_KERNEL(ctx, &s.act) : status;
}

static inline void linear_swiglu_plan(const tg_context *ctx, const tg_linear_swiglu_fwd_args *a,
                                      char *text, size_t bytes)
{
  const linear_swiglu_steps s = tgi_linear_swiglu_steps(a);
  TGI_PLAN(linear_fwd)(ctx, &s.gate, text, bytes);
}
#endif

#endif
