/**
 * Shape strings of the gated activations: gate and up apart, or packed as halves or interleaved.
 * One syntax for both directions: a backward's case is also read by its forward.
 */
#ifndef TGI_OPS_GATED_SHAPE_H
#define TGI_OPS_GATED_SHAPE_H

#include "ops/shape.h"

#define TGI_GATED_SYNTAX "ROWSxCOLS[_halves|_interleaved][_once][_nodgate][_nodup]"

static inline tg_tensor gated_view(tgi_shape *s, int64_t width)
{
  return tg_tensor_2d(NULL, s->dtype, tgi_shape_extent(s, 0), width * tgi_shape_extent(s, 1));
}

static inline tg_gate_up_packing gated_packing(tgi_shape *s)
{
  return tgi_shape_flag(s, "halves")        ? TG_GATE_UP_HALVES
         : tgi_shape_flag(s, "interleaved") ? TG_GATE_UP_INTERLEAVED
                                            : (tg_gate_up_packing)0;
}

#define TGI_GATED_FWD_SHAPE(s, a)                                                                  \
  do {                                                                                             \
    (a)->packing = gated_packing(s);                                                               \
    if ((a)->packing) {                                                                            \
      (a)->gate_up = gated_view(s, 2);                                                             \
    } else {                                                                                       \
      (a)->gate = (a)->up = gated_view(s, 1);                                                      \
    }                                                                                              \
    (a)->y = gated_view(s, 1);                                                                     \
    (a)->rounding = tgi_shape_flag(s, "once") ? TG_ROUNDING_ONCE : TG_ROUNDING_HF;                 \
    (void)tgi_shape_flag(s, "nodgate"), (void)tgi_shape_flag(s, "nodup");                          \
  } while (0)

#define TGI_GATED_BWD_SHAPE(s, a)                                                                  \
  do {                                                                                             \
    (a)->packing = gated_packing(s);                                                               \
    if ((a)->packing) {                                                                            \
      (a)->gate_up = (a)->dgate_up = gated_view(s, 2);                                             \
    } else {                                                                                       \
      (a)->gate = (a)->up = gated_view(s, 1);                                                      \
      (a)->dgate = tgi_shape_flag(s, "nodgate") ? (tg_tensor){0} : (a)->gate;                      \
      (a)->dup = tgi_shape_flag(s, "nodup") ? (tg_tensor){0} : (a)->gate;                          \
    }                                                                                              \
    (a)->dy = gated_view(s, 1);                                                                    \
    (void)tgi_shape_flag(s, "once");                                                               \
  } while (0)

#endif
