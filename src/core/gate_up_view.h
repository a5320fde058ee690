/** gate and up of a gated activation, separate or packed, as two views of equal shape. */
#ifndef TGI_CORE_GATE_UP_VIEW_H
#define TGI_CORE_GATE_UP_VIEW_H

#include "core/tensor_view.h"
#include "tegula/gate_up.h"

/** The fields of the args structs. */
typedef struct tgi_gate_up {
  const tg_tensor *gate, *up, *gate_up;
  tg_gate_up_packing packing;
} tgi_gate_up;

/** gate and up as views [rows, cols] for either form. The last axis of interleaved views has
 * stride 2. Absent views stay absent. */
static inline void tgi_gate_up_split(tgi_gate_up in, tg_tensor *gate, tg_tensor *up)
{
  *gate = *in.gate;
  *up = *in.up;
  if (!tgi_present(in.gate_up)) {
    return;
  }
  const bool halves = in.packing == TG_GATE_UP_HALVES;
  const int64_t cols = in.gate_up->shape[1] / 2, step = halves ? cols : 1;
  *gate = *in.gate_up;
  gate->shape[1] = cols;
  gate->stride[0] = tgi_stride(in.gate_up, 0);
  gate->stride[1] = halves ? 1 : 2;
  *up = *gate;
  up->data = (char *)gate->data + step * (int64_t)tg_dtype_bytes(gate->dtype);
}

#endif
