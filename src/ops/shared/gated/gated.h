/**
 * What the gated activations (swiglu, geglu, swiglu_clamped) have in common: gate and up, apart or
 * packed, as their args hold them, and the facts about these.
 */
#ifndef TGI_OPS_GATED_H
#define TGI_OPS_GATED_H

#include "core/checks.h"
#include "core/gate_up_view.h"
#include "tegula/rounding.h"

/** The inputs of a forward or backward, and the gradients of a backward. */
#define TGI_GATE_UP(a) ((tgi_gate_up){&(a)->gate, &(a)->up, &(a)->gate_up, (a)->packing})
#define TGI_DGATE_UP(a) ((tgi_gate_up){&(a)->dgate, &(a)->dup, &(a)->dgate_up, (a)->packing})

/** Facts of a call: one form of the inputs is there, everything else has its shape and dtype. */
void tgi_want_gated_fwd(tgi_call *call, tgi_gate_up in, const tg_tensor *y, tg_rounding rounding);
void tgi_want_gated_bwd(tgi_call *call, const tg_tensor *dy, tgi_gate_up in, tgi_gate_up gradients);

#endif
