/**
 * Rows of activations in fixed point, as linear_int8 and linear_int4 multiply them with integers.
 */
#ifndef TGI_CORE_FIXED_POINT_H
#define TGI_CORE_FIXED_POINT_H

#include "core/values/half.h"

/** Number of signed 8-bit digits of X: 3 (24 bits) for f32 results, 2 (16 bits) for 16-bit results.
 */
static inline int tgi_fixed_point_digits(tg_dtype result)
{
  return result == TG_F16 || result == TG_BF16 ? 2 : 3;
}

/**
 * The largest e with most * 2^e <= 127 * 256^(digits - 1), for a finite most >= 0; 0 for 0. The
 * digits below the top one then have their whole range, and rounding cannot overflow.
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
