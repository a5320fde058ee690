/**
 * Products of bytes: 16 sums of 32 bits, to each of which a step adds four products of an unsigned
 * weight with a signed digit of x. The words of integer matrix products.
 *
 *   quads        16 sums
 *   quad_bytes   their 64 weights, four neighbours in k for each sum
 *   quad_x       four digits, the same for every sum
 *
 * With AVX512-VNNI a step is one VPDPBUSD. Elsewhere weights and digits are widened to 16 bits and
 * pairs of products added by PMADDWD, which never saturates here, so every instruction set has the
 * same sums. A sum is right as long as it fits 32 bits, whatever came between.
 */
#ifndef TGI_CPU_QUADS_H
#define TGI_CPU_QUADS_H

#include "cpu/simd.h"

/** TGI_LANES bytes as floats. */
TGI_INLINE vf vf_load_u8(const uint8_t *p)
{
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
#elif defined(__AVX2__)
  return _mm256_cvtepi32_ps(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
#else
  return (vf){p[0], p[1], p[2], p[3]};
#endif
}

/* TGI_QUAD_LINES digits of x by TGI_QUAD_VECTORS quads fit the registers. */
#if defined(__AVX512VNNI__)

enum { TGI_QUAD_LINES = 12, TGI_QUAD_VECTORS = 2 };
typedef __m512i quads;
typedef __m512i quad_bytes;
typedef __m512i quad_x;

TGI_INLINE quads quads_set(int32_t v)
{
  return _mm512_set1_epi32(v);
}

TGI_INLINE quad_bytes quad_load(const uint8_t *p)
{
  return _mm512_loadu_si512(p);
}

/** The low and the high halves of 64 bytes, each as weights. */
TGI_INLINE void quad_load_halves(const uint8_t *p, quad_bytes *low, quad_bytes *high)
{
  const __m512i v = _mm512_loadu_si512(p), mask = _mm512_set1_epi8(15);
  *low = _mm512_and_si512(v, mask);
  *high = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
}

TGI_INLINE quad_x quad_spread(const int8_t *p)
{
  int32_t v;
  memcpy(&v, p, sizeof v);
  return _mm512_set1_epi32(v);
}

TGI_INLINE quads quads_add(quads sum, quad_bytes w, quad_x x)
{
  return _mm512_dpbusd_epi32(sum, w, x);
}

/** 256 above + below. */
TGI_INLINE quads quads_join(quads above, quads below)
{
  return _mm512_add_epi32(_mm512_slli_epi32(above, 8), below);
}

TGI_INLINE void quads_store(int32_t sum[16], quads v)
{
  _mm512_storeu_si512(sum, v);
}

TGI_INLINE void quads_store_f32(float sum[16], quads v)
{
  _mm512_storeu_ps(sum, _mm512_cvtepi32_ps(v));
}

#elif defined(__AVX512F__)

enum { TGI_QUAD_LINES = 6, TGI_QUAD_VECTORS = 2 };
typedef struct quads {
  __m512i a, b; /* of 8 columns each, in two parts that are added in the end */
} quads;
typedef quads quad_bytes;
typedef __m512i quad_x;

TGI_INLINE quads quads_set(int32_t v)
{
  const __m512i part = _mm512_set1_epi64((int64_t)(uint32_t)v);
  return (quads){part, part};
}

TGI_INLINE quad_bytes widen_bytes(__m512i v)
{
  return (quad_bytes){_mm512_cvtepu8_epi16(_mm512_castsi512_si256(v)),
                      _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(v, 1))};
}

TGI_INLINE quad_bytes quad_load(const uint8_t *p)
{
  return widen_bytes(_mm512_loadu_si512(p));
}

TGI_INLINE void quad_load_halves(const uint8_t *p, quad_bytes *low, quad_bytes *high)
{
  const __m512i v = _mm512_loadu_si512(p), mask = _mm512_set1_epi8(15);
  *low = widen_bytes(_mm512_and_si512(v, mask));
  *high = widen_bytes(_mm512_and_si512(_mm512_srli_epi16(v, 4), mask));
}

TGI_INLINE quad_x quad_spread(const int8_t *p)
{
  int32_t v;
  memcpy(&v, p, sizeof v);
  return _mm512_cvtepi8_epi16(_mm256_set1_epi32(v));
}

TGI_INLINE quads quads_add(quads sum, quad_bytes w, quad_x x)
{
  return (quads){_mm512_add_epi32(sum.a, _mm512_madd_epi16(w.a, x)),
                 _mm512_add_epi32(sum.b, _mm512_madd_epi16(w.b, x))};
}

TGI_INLINE quads quads_join(quads above, quads below)
{
  return (quads){_mm512_add_epi32(_mm512_slli_epi32(above.a, 8), below.a),
                 _mm512_add_epi32(_mm512_slli_epi32(above.b, 8), below.b)};
}

TGI_INLINE void quads_store(int32_t sum[16], quads v)
{
  int32_t part[32];
  _mm512_storeu_si512(part, v.a);
  _mm512_storeu_si512(part + 16, v.b);
  for (int c = 0; c < 16; c++) {
    sum[c] = part[2 * c] + part[2 * c + 1];
  }
}

#elif defined(__AVX2__)

enum { TGI_QUAD_LINES = 3, TGI_QUAD_VECTORS = 1 };
typedef struct quads {
  __m256i a, b, c, d; /* of 4 columns each, in two parts that are added in the end */
} quads;
typedef quads quad_bytes;
typedef __m256i quad_x;

TGI_INLINE quads quads_set(int32_t v)
{
  const __m256i part = _mm256_set1_epi64x((int64_t)(uint32_t)v);
  return (quads){part, part, part, part};
}

TGI_INLINE quad_bytes widen_bytes(__m256i low, __m256i high)
{
  return (quad_bytes){_mm256_cvtepu8_epi16(_mm256_castsi256_si128(low)),
                      _mm256_cvtepu8_epi16(_mm256_extracti128_si256(low, 1)),
                      _mm256_cvtepu8_epi16(_mm256_castsi256_si128(high)),
                      _mm256_cvtepu8_epi16(_mm256_extracti128_si256(high, 1))};
}

TGI_INLINE quad_bytes quad_load(const uint8_t *p)
{
  return widen_bytes(_mm256_loadu_si256((const __m256i *)(const void *)p),
                     _mm256_loadu_si256((const __m256i *)(const void *)(p + 32)));
}

TGI_INLINE void quad_load_halves(const uint8_t *p, quad_bytes *low, quad_bytes *high)
{
  const __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)p);
  const __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(p + 32));
  const __m256i mask = _mm256_set1_epi8(15);
  *low = widen_bytes(_mm256_and_si256(a, mask), _mm256_and_si256(b, mask));
  *high = widen_bytes(_mm256_and_si256(_mm256_srli_epi16(a, 4), mask),
                      _mm256_and_si256(_mm256_srli_epi16(b, 4), mask));
}

TGI_INLINE quad_x quad_spread(const int8_t *p)
{
  int32_t v;
  memcpy(&v, p, sizeof v);
  return _mm256_cvtepi8_epi16(_mm_set1_epi32(v));
}

TGI_INLINE quads quads_add(quads sum, quad_bytes w, quad_x x)
{
  return (quads){_mm256_add_epi32(sum.a, _mm256_madd_epi16(w.a, x)),
                 _mm256_add_epi32(sum.b, _mm256_madd_epi16(w.b, x)),
                 _mm256_add_epi32(sum.c, _mm256_madd_epi16(w.c, x)),
                 _mm256_add_epi32(sum.d, _mm256_madd_epi16(w.d, x))};
}

TGI_INLINE quads quads_join(quads above, quads below)
{
  return (quads){_mm256_add_epi32(_mm256_slli_epi32(above.a, 8), below.a),
                 _mm256_add_epi32(_mm256_slli_epi32(above.b, 8), below.b),
                 _mm256_add_epi32(_mm256_slli_epi32(above.c, 8), below.c),
                 _mm256_add_epi32(_mm256_slli_epi32(above.d, 8), below.d)};
}

TGI_INLINE void quads_store(int32_t sum[16], quads v)
{
  int32_t part[32];
  memcpy(part, &v, sizeof part);
  for (int c = 0; c < 16; c++) {
    sum[c] = part[2 * c] + part[2 * c + 1];
  }
}

#else

enum { TGI_QUAD_LINES = 3, TGI_QUAD_VECTORS = 1 };
typedef struct quads {
  int32_t v[16];
} quads;
typedef struct quad_bytes {
  uint8_t v[64];
} quad_bytes;
typedef const int8_t *quad_x;

TGI_INLINE quads quads_set(int32_t v)
{
  quads s;
  for (int c = 0; c < 16; c++) {
    s.v[c] = v;
  }
  return s;
}

TGI_INLINE quad_bytes quad_load(const uint8_t *p)
{
  quad_bytes w;
  memcpy(w.v, p, sizeof w.v);
  return w;
}

TGI_INLINE void quad_load_halves(const uint8_t *p, quad_bytes *low, quad_bytes *high)
{
  for (int c = 0; c < 64; c++) {
    low->v[c] = p[c] & 15;
    high->v[c] = p[c] >> 4;
  }
}

TGI_INLINE quad_x quad_spread(const int8_t *p)
{
  return p;
}

TGI_INLINE quads quads_add(quads sum, quad_bytes w, quad_x x)
{
  for (int c = 0; c < 16; c++) {
    const uint8_t *four = w.v + 4 * c;
    sum.v[c] += four[0] * x[0] + four[1] * x[1] + four[2] * x[2] + four[3] * x[3];
  }
  return sum;
}

TGI_INLINE quads quads_join(quads above, quads below)
{
  for (int c = 0; c < 16; c++) {
    below.v[c] += above.v[c] * 256;
  }
  return below;
}

TGI_INLINE void quads_store(int32_t sum[16], quads v)
{
  memcpy(sum, v.v, sizeof v.v);
}

#endif

#ifndef __AVX512VNNI__
TGI_INLINE void quads_store_f32(float sum[16], quads v)
{
  int32_t whole[16];
  quads_store(whole, v);
  for (int c = 0; c < 16; c++) {
    sum[c] = (float)whole[c];
  }
}
#endif

#endif
