/** The scale of a group of MXFP4: f32 has no 2^128, so a factor of two goes to the codes. */
#ifndef TGI_OPS_MXFP4_SCALE_H
#define TGI_OPS_MXFP4_SCALE_H

#include <stdint.h>

/** The bits of 2^(scale - 128) in f32, for scales of 0 to 255; the first two are denormal. */
static inline uint32_t tgi_mxfp4_half_scale_bits(uint8_t scale)
{
  return scale >= 2 ? (uint32_t)(scale - 1) << 23 : UINT32_C(0x200000) << scale;
}

#endif
