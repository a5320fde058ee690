/** The dtypes of a normalisation's call, of which x's is a constant, and what is loaded and stored
 * by them. */
#ifndef TGI_CPU_NORM_DTYPES_H
#define TGI_CPU_NORM_DTYPES_H

#include "cpu/simd.h"

/** x: of all that is shaped like it; y: of dy in the backward. The contracts allow (t, t, t),
 * (t, f32, t) and some (t, f32, f32): whether the latter are x's or f32 is asked for each vector,
 * for code of its own for each mixture was a third of the library and no faster. */
typedef struct norm_dtypes {
  int x, weight, y;
} norm_dtypes;

/** Runs the statements with T the dtypes of `t`, T.x a constant. `wide`: y may be f32 where x is
 * not. */
#define SWITCH_NORM_DTYPES(t, wide, T, ...)                                                        \
  TGI_SWITCH_FLOAT((t).x, X_,                                                                      \
                   const norm_dtypes T = {X_, (int)X_ == TG_F32 ? TG_F32 : (int)(t).weight,        \
                                          (int)X_ == TG_F32 || !(wide) ? (int)X_ : (int)(t).y};    \
                   __VA_ARGS__)

/** vf_load_up_to of a tensor of dtype `mixed`, which is f32 or the constant t. */
TGI_INLINE vf norm_load(const void *base, int mixed, int t, int64_t i, int64_t n)
{
  return mixed == TG_F32 ? vf_load_up_to(base, TG_F32, i, n) : vf_load_up_to(base, t, i, n);
}

TGI_INLINE void norm_put(void *base, int mixed, int t, int64_t i, int64_t n, vf v, bool stream)
{
  if (mixed == TG_F32) {
    vf_put_up_to(base, TG_F32, i, n, v, stream);
  } else {
    vf_put_up_to(base, t, i, n, v, stream);
  }
}

#endif
