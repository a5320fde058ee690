/** The words of a shape that say which activation follows a grouped product:
 * [_swiglu|_clamped][_interleaved][_pre]. */
#ifndef TGI_OPS_GROUPED_ACTIVATION_SHAPE_H
#define TGI_OPS_GROUPED_ACTIVATION_SHAPE_H

#include "ops/shape.h"

/** The slots of the call that they fill. */
typedef struct tgi_activation_slots {
  tg_gated_activation *activation;
  tg_gate_up_packing *packing;
  float *alpha, *limit;
  tg_tensor *preactivation, *y;
} tgi_activation_slots;

/** An activation halves y; with `pre` y as it was is the pre-activation. */
static inline void tgi_read_activation(tgi_shape *s, tgi_activation_slots a)
{
  const bool clamped = tgi_shape_flag(s, "clamped"), swiglu = tgi_shape_flag(s, "swiglu");
  const bool interleaved = tgi_shape_flag(s, "interleaved"), pre = tgi_shape_flag(s, "pre");
  if (!clamped && !swiglu) {
    return;
  }
  *a.activation = clamped ? TG_GATED_SWIGLU_CLAMPED : TG_GATED_SWIGLU;
  *a.packing = interleaved ? TG_GATE_UP_INTERLEAVED : TG_GATE_UP_HALVES;
  *a.alpha = clamped ? 1.702f : 0;
  *a.limit = clamped ? 7 : 0;
  if (pre) {
    *a.preactivation = *a.y;
  }
  a.y->shape[1] /= 2;
}

#endif
