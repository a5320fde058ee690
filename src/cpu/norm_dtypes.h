/** The dtypes of a normalisation's call, and the switch that makes constants of them. */
#ifndef TGI_CPU_NORM_DTYPES_H
#define TGI_CPU_NORM_DTYPES_H

#include "cpu/simd.h"

/** x: of all that is shaped like it; y: of dy in the backward. */
typedef struct norm_dtypes {
  int x, weight, y;
} norm_dtypes;

/** Runs the statements with T a constant equal to `t`: of (x, weight, y) the contracts allow
 * (t, t, t), (t, f32, t) and, if `wide`, (t, f32, f32). */
#define SWITCH_NORM_DTYPES(t, wide, T, ...)                                                        \
  TGI_SWITCH_FLOAT((t).x, X_,                                                                      \
                   if ((int)X_ != TG_F32 && (wide) && (t).y != X_) {                               \
                     const norm_dtypes T = {X_, TG_F32, TG_F32};                                   \
                     __VA_ARGS__;                                                                  \
                   } else if ((int)X_ != TG_F32 && (t).weight != X_) {                             \
                     const norm_dtypes T = {X_, TG_F32, X_};                                       \
                     __VA_ARGS__;                                                                  \
                   } else {                                                                        \
                     const norm_dtypes T = {X_, X_, X_};                                           \
                     __VA_ARGS__;                                                                  \
                   })

#endif
