/**
 * Rows of activations as integers: what linear_int8 and linear_int4 multiply with integer weights.
 */
#ifndef TGI_CORE_FIXED_POINT_H
#define TGI_CORE_FIXED_POINT_H

#include "core/half.h"

/** Largest magnitude of a 24-bit integer made of three signed digits, the top one at most 127, with
 * room for rounding. */
#define TGI_FIXED_POINT_MOST (127 << 16)

/** The largest e with most * 2^e <= TGI_FIXED_POINT_MOST, for a finite most >= 0; 0 for 0. */
static inline int tgi_fixed_point_exponent(float most)
{
  int exponent;
  if (most == 0) {
    return 0;
  }
  const float fraction = frexpf(most, &exponent); /* in [0.5, 1) */
  return 23 - exponent - (ldexpf(fraction, 23) > TGI_FIXED_POINT_MOST);
}

#endif
