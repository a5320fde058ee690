/**
 * Vectors of small integers in memory: bytes, and pairs of 4-bit values in bytes. Words beside
 * those of cpu/simd.h, in units of four vectors, which fill whole stores.
 */
#ifndef TGI_CPU_BYTES_H
#define TGI_CPU_BYTES_H

#include "cpu/simd.h"

enum { TGI_BYTE_UNIT = 4 * TGI_LANES }; /* values */

#if defined(__AVX512F__)

/** Nearest integers, ties to even. */
TGI_INLINE vi vi_nearest(vf v)
{
  return _mm512_cvtps_epi32(v);
}

TGI_INLINE vi vi_set1(int32_t v)
{
  return _mm512_set1_epi32(v);
}

TGI_INLINE vi vi_add(vi a, vi b)
{
  return _mm512_add_epi32(a, b);
}

TGI_INLINE vi vi_min(vi a, vi b)
{
  return _mm512_min_epi32(a, b);
}

TGI_INLINE vi vi_and(vi a, vi b)
{
  return _mm512_and_si512(a, b);
}

/** The bits of floats, and back. */
TGI_INLINE vi vi_bits(vf v)
{
  return _mm512_castps_si512(v);
}

TGI_INLINE vf vf_bits(vi v)
{
  return _mm512_castsi512_ps(v);
}

TGI_INLINE vi vi_load(const int32_t *p)
{
  return _mm512_loadu_si512(p);
}

TGI_INLINE void vi_store(int32_t *p, vi v)
{
  _mm512_storeu_si512(p, v);
}

/* Bytes of v[0], v[1], v[2], v[3], saturated: each step interleaves within 16 bytes. */
TGI_INLINE __m512i pack_bytes(const vi *v)
{
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i pairs =
      _mm512_packs_epi16(_mm512_packs_epi32(v[0], v[1]), _mm512_packs_epi32(v[2], v[3]));
  return _mm512_permutexvar_epi32(order, pairs);
}

/** A unit of integers, each saturated to i8. Streamed: p is aligned (tgi_streamable). */
TGI_INLINE void vi_put_i8(int8_t *p, const vi *v, bool stream)
{
  if (stream) {
    _mm512_stream_si512((void *)p, pack_bytes(v));
  } else {
    _mm512_storeu_si512(p, pack_bytes(v));
  }
}

/** A unit of integers 0 to 15 in half as many bytes, the first of two in the low half. */
TGI_INLINE void vi_put_nibbles(uint8_t *p, const vi *v, bool stream)
{
  const __m512i both = _mm512_maddubs_epi16(pack_bytes(v), _mm512_set1_epi16(0x1001));
  const __m256i bytes = _mm512_cvtepi16_epi8(both);
  if (stream) {
    _mm256_stream_si256((void *)p, bytes);
  } else {
    _mm256_storeu_si256((void *)p, bytes);
  }
}

/** TGI_LANES bytes, as numbers. */
TGI_INLINE vf vf_load_i8(const int8_t *p)
{
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
}

/** A unit of 4-bit values out of half as many bytes. */
TGI_INLINE void vf_load_nibbles(const uint8_t *p, vf *v)
{
  const __m512i wide = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)p));
  const __m512i n = _mm512_and_si512(_mm512_or_si512(wide, _mm512_slli_epi16(wide, 4)),
                                     _mm512_set1_epi16(0x0f0f));
  v[0] = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm512_castsi512_si128(n)));
  v[1] = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(n, 1)));
  v[2] = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(n, 2)));
  v[3] = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(n, 3)));
}

#elif defined(__AVX2__)

TGI_INLINE vi vi_nearest(vf v)
{
  return _mm256_cvtps_epi32(v);
}

TGI_INLINE vi vi_set1(int32_t v)
{
  return _mm256_set1_epi32(v);
}

TGI_INLINE vi vi_add(vi a, vi b)
{
  return _mm256_add_epi32(a, b);
}

TGI_INLINE vi vi_min(vi a, vi b)
{
  return _mm256_min_epi32(a, b);
}

TGI_INLINE vi vi_and(vi a, vi b)
{
  return _mm256_and_si256(a, b);
}

TGI_INLINE vi vi_bits(vf v)
{
  return _mm256_castps_si256(v);
}

TGI_INLINE vf vf_bits(vi v)
{
  return _mm256_castsi256_ps(v);
}

TGI_INLINE vi vi_load(const int32_t *p)
{
  return _mm256_loadu_si256((const void *)p);
}

TGI_INLINE void vi_store(int32_t *p, vi v)
{
  _mm256_storeu_si256((void *)p, v);
}

TGI_INLINE __m256i pack_bytes(const vi *v)
{
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i pairs =
      _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
  return _mm256_permutevar8x32_epi32(pairs, order);
}

TGI_INLINE void vi_put_i8(int8_t *p, const vi *v, bool stream)
{
  if (stream) {
    _mm256_stream_si256((void *)p, pack_bytes(v));
  } else {
    _mm256_storeu_si256((void *)p, pack_bytes(v));
  }
}

TGI_INLINE void vi_put_nibbles(uint8_t *p, const vi *v, bool stream)
{
  const __m256i both = _mm256_maddubs_epi16(pack_bytes(v), _mm256_set1_epi16(0x1001));
  const __m128i bytes =
      _mm_packus_epi16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
  if (stream) {
    _mm_stream_si128((void *)p, bytes);
  } else {
    _mm_storeu_si128((void *)p, bytes);
  }
}

TGI_INLINE vf vf_load_i8(const int8_t *p)
{
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)));
}

TGI_INLINE void vf_load_nibbles(const uint8_t *p, vf *v)
{
  const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p));
  const __m256i n = _mm256_and_si256(_mm256_or_si256(wide, _mm256_slli_epi16(wide, 4)),
                                     _mm256_set1_epi16(0x0f0f));
  const __m128i low = _mm256_castsi256_si128(n), high = _mm256_extracti128_si256(n, 1);
  v[0] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(low));
  v[1] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(low, low)));
  v[2] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(high));
  v[3] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(high, high)));
}

#else

TGI_INLINE vi vi_nearest(vf v)
{
  return __builtin_convertvector(vf_rint(v), vi);
}

TGI_INLINE vi vi_set1(int32_t v)
{
  return (vi){v, v, v, v};
}

TGI_INLINE vi vi_add(vi a, vi b)
{
  return a + b;
}

TGI_INLINE vi vi_min(vi a, vi b)
{
  return (a & (a < b)) | (b & ~(a < b));
}

TGI_INLINE vi vi_and(vi a, vi b)
{
  return a & b;
}

TGI_INLINE vi vi_bits(vf v)
{
  return (vi)v;
}

TGI_INLINE vf vf_bits(vi v)
{
  return (vf)v;
}

TGI_INLINE vi vi_load(const int32_t *p)
{
  vi v;
  memcpy(&v, p, sizeof v);
  return v;
}

TGI_INLINE void vi_store(int32_t *p, vi v)
{
  memcpy(p, &v, sizeof v);
}

TGI_INLINE void vi_put_i8(int8_t *p, const vi *v, bool stream)
{
  (void)stream;
  for (int k = 0; k < TGI_BYTE_UNIT; k++) {
    const int32_t n = v[k / TGI_LANES][k % TGI_LANES];
    p[k] = (int8_t)(n < -128 ? -128 : n > 127 ? 127 : n);
  }
}

TGI_INLINE void vi_put_nibbles(uint8_t *p, const vi *v, bool stream)
{
  (void)stream;
  for (int k = 0; k < TGI_BYTE_UNIT; k += 2) {
    const vi *pair = &v[k / TGI_LANES];
    p[k / 2] = (uint8_t)((*pair)[k % TGI_LANES] | (*pair)[k % TGI_LANES + 1] << 4);
  }
}

TGI_INLINE vf vf_load_i8(const int8_t *p)
{
  return (vf){p[0], p[1], p[2], p[3]};
}

TGI_INLINE void vf_load_nibbles(const uint8_t *p, vf *v)
{
  for (int k = 0; k < 4; k++) {
    const uint8_t a = p[2 * k], b = p[2 * k + 1];
    v[k] = (vf){(float)(a & 15), (float)(a >> 4), (float)(b & 15), (float)(b >> 4)};
  }
}

#endif

#endif
