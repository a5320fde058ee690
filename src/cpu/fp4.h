/** 4-bit floating-point codes (e2m1) in vectors: a lane has eight of them in a 32-bit word. */
#ifndef TGI_CPU_FP4_H
#define TGI_CPU_FP4_H

#include "cpu/simd.h"

#include <string.h>

/** What vf_fp4 looks up: in a register, where lookups are instructions. */
#if defined(__AVX512F__)
typedef __m512 fp4_values;

TGI_INLINE fp4_values fp4_all(void)
{
  return _mm512_setr_ps(0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12);
}

/** TGI_LANES words from any address on. */
TGI_INLINE vi fp4_load(const uint8_t *p)
{
  return _mm512_loadu_si512(p);
}

/** Twice the value of code j of each word: VPERMPS reads the low four bits of a lane. */
TGI_INLINE vf vf_fp4(fp4_values all, vi words, const int j)
{
  return _mm512_permutexvar_ps(j == 0 ? words : _mm512_srli_epi32(words, 4 * (unsigned)j), all);
}

#elif defined(__AVX2__)
typedef __m256 fp4_values;

TGI_INLINE fp4_values fp4_all(void)
{
  return _mm256_setr_ps(0, 1, 2, 3, 4, 6, 8, 12);
}

TGI_INLINE vi fp4_load(const uint8_t *p)
{
  return _mm256_loadu_si256((const void *)p);
}

/** VPERMPS reads the low three bits of a lane; the fourth goes to the sign. */
TGI_INLINE vf vf_fp4(fp4_values all, vi words, const int j)
{
  const __m256i code = j == 0 ? words : _mm256_srli_epi32(words, 4 * j);
  const __m256i sign = j == 7 ? words : _mm256_slli_epi32(words, 28 - 4 * j);
  const __m256 bit = _mm256_and_ps(_mm256_castsi256_ps(sign), _mm256_set1_ps(-0.0f));
  return _mm256_or_ps(_mm256_permutevar8x32_ps(all, code), bit);
}

#else
typedef int fp4_values;

TGI_INLINE fp4_values fp4_all(void)
{
  return 0;
}

TGI_INLINE vi fp4_load(const uint8_t *p)
{
  vi v;
  memcpy(&v, p, sizeof v);
  return v;
}

TGI_INLINE vf vf_fp4(fp4_values all, vi words, const int j)
{
  static const float kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12};
  vf v;
  (void)all;
  TGI_EACH_LANE(k)
  {
    v[k] = kTwice[(uint32_t)words[k] >> 4 * j & 15];
  }
  return v;
}
#endif

#endif
