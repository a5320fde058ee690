/** e4m3 values in vectors: the bits of core/values/half.h's scalar conversion. */
#ifndef TGI_CPU_FLOAT8_H
#define TGI_CPU_FLOAT8_H

#include "cpu/simd.h"

/* A code's exponent and fraction, shifted into place, are an f16 number 2^8 times as small, its
 * denormals included; conversion from f16 knows them at full speed. Only NaN must be put back. */

#if defined(__AVX512F__)

/** TGI_LANES values. */
TGI_INLINE vf vf_load_f8(const uint8_t *p)
{
  const __m128i code = _mm_loadu_si128((const __m128i *)(const void *)p);
  const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(code), 7);
  const __m256i half = _mm256_and_si256(shifted, _mm256_set1_epi16((int16_t)0xbf80));
  const __m128i magnitude = _mm_and_si128(code, _mm_set1_epi8(0x7f));
  const __mmask16 nan = _mm_cmpeq_epi8_mask(magnitude, _mm_set1_epi8(0x7f));
  const vf v = _mm512_mul_ps(_mm512_cvtph_ps(half), vf_set1(256));
  return _mm512_mask_blend_ps(nan, v, vf_set1(NAN));
}

#elif defined(__AVX2__)

TGI_INLINE vf vf_load_f8(const uint8_t *p)
{
  const __m128i code = _mm_loadl_epi64((const __m128i *)(const void *)p);
  const __m128i shifted = _mm_slli_epi16(_mm_cvtepi8_epi16(code), 7);
  const __m128i half = _mm_and_si128(shifted, _mm_set1_epi16((int16_t)0xbf80));
  const __m128i magnitude = _mm_and_si128(code, _mm_set1_epi8(0x7f));
  const __m128i nan = _mm_cmpeq_epi8(magnitude, _mm_set1_epi8(0x7f));
  const vf v = _mm256_mul_ps(_mm256_cvtph_ps(half), vf_set1(256));
  return _mm256_blendv_ps(v, vf_set1(NAN), _mm256_castsi256_ps(_mm256_cvtepi8_epi32(nan)));
}

#else

TGI_INLINE vf vf_load_f8(const uint8_t *p)
{
  vf v;
  TGI_EACH_LANE(k)
  {
    v[k] = tgi_f8_e4m3_to_f32(p[k]);
  }
  return v;
}

#endif

#endif
