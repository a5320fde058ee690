/** The gated activation of an op that computes gate and up itself: which one, its scalars, and how
 * it runs on rows of gate and up. For C and CUDA. */
#ifndef TGI_OPS_GATED_CHOICE_H
#define TGI_OPS_GATED_CHOICE_H

#include "ops/kernels.h"

#include <string.h>

typedef struct tgi_gated_choice {
  tg_gated_activation activation;
  float alpha, limit; /* of SWIGLU_CLAMPED */
  tg_gate_up_packing packing;
} tgi_gated_choice;

static inline tgi_gated_choice tgi_gated_choice_of(tg_gated_activation activation, float alpha,
                                                   float limit, tg_gate_up_packing packing)
{
  tgi_gated_choice c;
  c.activation = activation;
  c.alpha = alpha;
  c.limit = limit;
  c.packing = packing;
  return c;
}

/** The choice of an args struct. */
#define TGI_GATED_CHOICE(a)                                                                        \
  tgi_gated_choice_of((a)->activation, (a)->alpha, (a)->limit, (a)->packing)

/** Facts: an activation from `first` on, with its scalars. */
void tgi_want_gated_choice(tgi_call *call, tgi_gated_choice c, tg_gated_activation first);

/** Column c of gate and of up in rows [gate and up] of 2 * cols columns. */
static inline int64_t tgi_gate_column(tg_gate_up_packing packing, int64_t c)
{
  return packing == TG_GATE_UP_HALVES ? c : 2 * c;
}

static inline int64_t tgi_up_column(tg_gate_up_packing packing, int64_t cols, int64_t c)
{
  return packing == TG_GATE_UP_HALVES ? cols + c : 2 * c + 1;
}

#ifdef TGI_ENTRY
/* The entry sm90 has no kernels of these ops: it takes those of sm80. */
#if defined(TGI_VIRTUAL) && TGI_VIRTUAL >= 90
#define TGI_GATED_KERNEL(op_dir) TGI_JOIN(op_dir, run, sm80)
tg_status TGI_GATED_KERNEL(swiglu_fwd)(const tg_context *ctx, const tg_swiglu_fwd_args *args);
tg_status TGI_GATED_KERNEL(swiglu_clamped_fwd)(const tg_context *ctx,
                                               const tg_swiglu_clamped_fwd_args *args);
#else
#define TGI_GATED_KERNEL(op_dir) TGI_KERNEL(op_dir)
#endif

/** a = act(h), by the kernels of swiglu and swiglu_clamped, which round once. */
static inline tg_status tgi_activate(const tg_context *ctx, tgi_gated_choice c, const tg_tensor *h,
                                     const tg_tensor *a)
{
  if (tgi_numel(a) == 0) {
    return TG_OK;
  }
  if (c.activation == TG_GATED_SWIGLU) {
    tg_swiglu_fwd_args args;
    memset(&args, 0, sizeof args);
    args.gate_up = *h;
    args.y = *a;
    args.packing = c.packing;
    args.rounding = TG_ROUNDING_ONCE;
    return TGI_GATED_KERNEL(swiglu_fwd)(ctx, &args);
  }
  tg_swiglu_clamped_fwd_args args;
  memset(&args, 0, sizeof args);
  args.gate_up = *h;
  args.y = *a;
  args.alpha = c.alpha;
  args.limit = c.limit;
  args.packing = c.packing;
  args.rounding = TG_ROUNDING_ONCE;
  return TGI_GATED_KERNEL(swiglu_clamped_fwd)(ctx, &args);
}
#endif

#endif
