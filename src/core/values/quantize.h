/**
 * Scales and zero points of integer formats, as the contracts of quantize_int8 and quantize_int4
 * define them bit for bit.
 */
#ifndef TGI_CORE_QUANTIZE_H
#define TGI_CORE_QUANTIZE_H

#include "core/values/half.h"
#include <stdbool.h>

/** The divisor of a group of values, and the integer that is then added. */
typedef struct tgi_quant {
  float scale;
  int32_t zero_point;
} tgi_quant;

/**
 * v > 0 plus 4 units in the last place, rounded up to 15 significant bits. The 4 units compensate
 * the roundings that led to v. With this scale s, products of s with integers below 2^9, and the
 * ties between them, are exact in f32. A quotient x / s that is no tie is therefore never rounded
 * to a tie, and rounding it once more gives the integer nearest to the exact quotient.
 */
static inline float tgi_scale_up(float v)
{
  return tgi_bits_float((tgi_float_bits(v) + 4 + 511) & ~511u);
}

/** tgi_scale_up, then rounded up to the dtype of the scale; NaN beyond its range. */
static inline float tgi_scale_up_to(tg_dtype dtype, float v)
{
  const float up = tgi_scale_up(v);
  if (dtype != TG_F16) {
    return up;
  }
  const uint16_t nearest = tgi_f32_to_f16(up);
  const uint16_t above = (uint16_t)(nearest + (tgi_f16_to_f32(nearest) < up));
  return above < 0x7c00u ? tgi_f16_to_f32(above) : NAN;
}

static inline bool tgi_bounds_are_finite(float low, float high)
{
  return isfinite(low) && isfinite(high);
}

/* Below, low = min(0, values) and high = max(0, values) of a group. The group is finite if both
 * are. */

static inline tgi_quant tgi_int8_symmetric(float low, float high)
{
  const float most = high > -low ? high : -low;
  if (!tgi_bounds_are_finite(low, high)) {
    return (tgi_quant){NAN, 0};
  }
  return (tgi_quant){most > 0 ? tgi_scale_up(most / 127) : 1, 0};
}

static inline tgi_quant tgi_int8_asymmetric(float low, float high)
{
  if (!tgi_bounds_are_finite(low, high)) {
    return (tgi_quant){NAN, 0};
  }
  const float scale = low < high ? tgi_scale_up(high / 255 - low / 255) : 1;
  return (tgi_quant){scale, -128 - (int32_t)rintf(low / scale)};
}

static inline tgi_quant tgi_int4_symmetric(float low, float high, tg_dtype scale_dtype)
{
  const float up = high / 7.5f, down = -low / 8.5f;
  if (!tgi_bounds_are_finite(low, high)) {
    return (tgi_quant){NAN, 8};
  }
  return (tgi_quant){low < high ? tgi_scale_up_to(scale_dtype, up > down ? up : down) : 1, 8};
}

static inline tgi_quant tgi_int4_asymmetric(float low, float high, tg_dtype scale_dtype)
{
  if (!tgi_bounds_are_finite(low, high)) {
    return (tgi_quant){NAN, 8};
  }
  const float scale = low < high ? tgi_scale_up_to(scale_dtype, high / 15 - low / 15) : 1;
  return (tgi_quant){scale, isnan(scale) ? 8 : -(int32_t)rintf(low / scale)};
}

/** The scale of a row for e4m3, of the largest magnitude in it, NaN or infinity if it holds one. */
static inline float tgi_e4m3_scale(float most)
{
  const float scale = most / 448, least = 0x1p-126f;
  return !isfinite(most) ? NAN : scale > least ? scale : least;
}

#endif
