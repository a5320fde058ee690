/**
 * Scalar conversions between f32 and the 16-bit formats, and 8-bit floats: round to nearest even;
 * NaN stays NaN, denormals are kept. Vector code (cpu/simd.h) gives the same bits.
 */
#ifndef TGI_CORE_HALF_H
#define TGI_CORE_HALF_H

#include "tegula/tensor.h"
#include <math.h>
#include <string.h>

static inline uint32_t tgi_float_bits(float v)
{
  uint32_t u;
  memcpy(&u, &v, sizeof u);
  return u;
}

static inline float tgi_bits_float(uint32_t u)
{
  float v;
  memcpy(&v, &u, sizeof v);
  return v;
}

static inline float tgi_bf16_to_f32(uint16_t h)
{
  return tgi_bits_float((uint32_t)h << 16);
}

static inline uint16_t tgi_f32_to_bf16(float v)
{
  const uint32_t u = tgi_float_bits(v);
  if ((u & 0x7fffffffu) > 0x7f800000u) {
    return (uint16_t)(u >> 16 | 0x40u); /* quiet, payload kept */
  }
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

static inline float tgi_f16_to_f32(uint16_t h)
{
  const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
  const uint32_t exponent = h >> 10 & 0x1fu, fraction = h & 0x3ffu;
  if (exponent == 0) { /* zero and denormals: fraction * 2^-24, exact in f32 */
    return tgi_bits_float(sign | tgi_float_bits((float)fraction * 0x1p-24f));
  }
  if (exponent == 31) { /* infinity; NaN becomes quiet as in hardware */
    return tgi_bits_float(sign | 0x7f800000u | fraction << 13 | (fraction ? 0x400000u : 0));
  }
  return tgi_bits_float(sign | (exponent + 112) << 23 | fraction << 13);
}

static inline uint16_t tgi_f32_to_f16(float v)
{
  const uint32_t u = tgi_float_bits(v), magnitude = u & 0x7fffffffu;
  const uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);
  if (magnitude > 0x7f800000u) {
    return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  }
  if (magnitude >= 0x47800000u) { /* 65536 and above, infinity */
    return (uint16_t)(sign | 0x7c00u);
  }
  if (magnitude < 0x38800000u) { /* result is denormal: let an f32 addition round it */
    const float shifted = tgi_bits_float(magnitude) + 0.5f;
    return (uint16_t)(sign | (tgi_float_bits(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u);
  return (uint16_t)(sign | rounded >> 13); /* 65520 and above carry into infinity */
}

static inline float tgi_f8_e4m3_to_f32(uint8_t h)
{
  const uint32_t sign = (uint32_t)(h & 0x80u) << 24, exponent = h >> 3 & 0xfu, fraction = h & 7u;
  if ((h & 0x7fu) == 0x7fu) {
    return tgi_bits_float(sign | 0x7fc00000u);
  }
  if (exponent == 0) { /* fraction * 2^-9 */
    return tgi_bits_float(sign | tgi_float_bits((float)fraction * 0x1p-9f));
  }
  return tgi_bits_float(sign | (exponent + 120) << 23 | fraction << 20);
}

/** The largest value is 448. Numbers that round to more become NaN. */
static inline uint8_t tgi_f32_to_f8_e4m3(float v)
{
  const uint32_t u = tgi_float_bits(v), magnitude = u & 0x7fffffffu;
  const uint8_t sign = (uint8_t)(u >> 24 & 0x80u);
  if (magnitude > 0x43e80000u) { /* 464, halfway to 480, still rounds to 448 */
    return (uint8_t)(sign | 0x7fu);
  }
  if (magnitude < 0x3c800000u) { /* result is denormal: let an f32 addition round it */
    const float shifted = tgi_bits_float(magnitude) + 0x1p14f;
    return (uint8_t)(sign | (tgi_float_bits(shifted) - 0x46800000u));
  }
  const uint32_t rounded = magnitude - 0x3c000000u + 0x7ffffu + (magnitude >> 20 & 1u);
  return (uint8_t)(sign | rounded >> 20);
}

/** Largest finite value of f32, f16 or bf16, and that of f32 for f64. */
static inline float tgi_largest_finite(tg_dtype dtype)
{
  return dtype == TG_F16 ? 65504.0f : tgi_bits_float(dtype == TG_BF16 ? 0x7f7f0000u : 0x7f7fffffu);
}

/** Element `i` behind `data`, as f64. Integers up to 2^53 are exact. */
static inline double tgi_load(const void *data, tg_dtype dtype, int64_t i)
{
  switch (dtype) {
  case TG_F32:
    return ((const float *)data)[i];
  case TG_F16:
    return tgi_f16_to_f32(((const uint16_t *)data)[i]);
  case TG_BF16:
    return tgi_bf16_to_f32(((const uint16_t *)data)[i]);
  case TG_F64:
    return ((const double *)data)[i];
  case TG_I32:
    return ((const int32_t *)data)[i];
  case TG_I64:
    return (double)((const int64_t *)data)[i];
  case TG_I8:
    return ((const int8_t *)data)[i];
  case TG_U8:
    return ((const uint8_t *)data)[i];
  case TG_F8_E4M3:
    return tgi_f8_e4m3_to_f32(((const uint8_t *)data)[i]);
  case TG_DTYPE_NONE:
    break;
  }
  return NAN;
}

/** Stores `v` rounded to `dtype` (through f32 for the 16-bit formats). */
static inline void tgi_store(void *data, tg_dtype dtype, int64_t i, double v)
{
  switch (dtype) {
  case TG_F32:
    ((float *)data)[i] = (float)v;
    break;
  case TG_F16:
    ((uint16_t *)data)[i] = tgi_f32_to_f16((float)v);
    break;
  case TG_BF16:
    ((uint16_t *)data)[i] = tgi_f32_to_bf16((float)v);
    break;
  case TG_F64:
    ((double *)data)[i] = v;
    break;
  case TG_I32:
    ((int32_t *)data)[i] = (int32_t)v;
    break;
  case TG_I64:
    ((int64_t *)data)[i] = (int64_t)v;
    break;
  case TG_I8:
    ((int8_t *)data)[i] = (int8_t)v;
    break;
  case TG_U8:
    ((uint8_t *)data)[i] = (uint8_t)v;
    break;
  case TG_F8_E4M3:
    ((uint8_t *)data)[i] = tgi_f32_to_f8_e4m3((float)v);
    break;
  case TG_DTYPE_NONE:
    break;
  }
}

/** Integer element `i` of an i32 or i64 array. */
static inline int64_t tgi_load_int(const void *data, tg_dtype dtype, int64_t i)
{
  return dtype == TG_I32 ? ((const int32_t *)data)[i] : ((const int64_t *)data)[i];
}

/** `v` in TF32, which has f32's range and 10 bits of mantissa: to nearest, ties away from zero. */
static inline double tgi_round_tf32(double v)
{
  if (!isfinite(v)) {
    return v;
  }
  /* beyond the largest value: infinity */
  return tgi_bits_float((tgi_float_bits((float)v) + 0x1000) & ~UINT32_C(0x1fff));
}

/** `v` rounded to `dtype` and back: the rounding hook of the reference. With f64 the identity. */
static inline double tgi_round(tg_dtype dtype, double v)
{
  switch (dtype) {
  case TG_F32:
    return (float)v;
  case TG_F16:
    return tgi_f16_to_f32(tgi_f32_to_f16((float)v));
  case TG_BF16:
    return tgi_bf16_to_f32(tgi_f32_to_bf16((float)v));
  default:
    return v;
  }
}

#endif
