/**
 * Rows of activations as integers: what linear_int8 and linear_int4 multiply with integer weights.
 */
#ifndef TGI_CORE_FIXED_POINT_H
#define TGI_CORE_FIXED_POINT_H

#include "core/half.h"

/** Signed digits of 8 bits that X has: 24 bits for results in f32, 16 for results of 16 bits. */
static inline int tgi_fixed_point_digits(tg_dtype result)
{
  return result == TG_F16 || result == TG_BF16 ? 2 : 3;
}

/**
 * The largest e with most * 2^e <= 127 * 256^(digits - 1), for a finite most >= 0; 0 for 0. That
 * leaves the digits below the top one their whole range, and room for rounding.
 */
static inline int tgi_fixed_point_exponent(float most, int digits)
{
  int exponent;
  if (most == 0) {
    return 0;
  }
  const float fraction = frexpf(most, &exponent); /* in [0.5, 1) */
  return 8 * digits - 1 - exponent - (fraction * 128 > 127);
}

#endif
