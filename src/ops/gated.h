/**
 * What the gated activations (swiglu, geglu, swiglu_clamped) have in common: gate and up, apart or
 * packed, as their args hold them, the facts about these, and the two as views of equal shape.
 */
#ifndef TGI_OPS_GATED_H
#define TGI_OPS_GATED_H

#include "core/checks.h"
#include "tegula/gate_up.h"
#include "tegula/rounding.h"

typedef struct tgi_gate_up {
  const tg_tensor *gate, *up, *gate_up;
  tg_gate_up_packing packing;
} tgi_gate_up;

/** The inputs of a forward or backward, and the gradients of a backward. */
#define TGI_GATE_UP(a) ((tgi_gate_up){&(a)->gate, &(a)->up, &(a)->gate_up, (a)->packing})
#define TGI_DGATE_UP(a) ((tgi_gate_up){&(a)->dgate, &(a)->dup, &(a)->dgate_up, (a)->packing})

/** Facts of a call: one form of the inputs is there, everything else has its shape and dtype. */
void tgi_want_gated_fwd(tgi_call *call, tgi_gate_up in, const tg_tensor *y, tg_rounding rounding);
void tgi_want_gated_bwd(tgi_call *call, const tg_tensor *dy, tgi_gate_up in, tgi_gate_up gradients);

/** gate and up as views [rows, cols] whichever form they have; the last axis of an interleaved one
 * has stride 2. What is absent stays so. */
void tgi_gate_up_split(tgi_gate_up in, tg_tensor *gate, tg_tensor *up);

#endif
