/** cpu/simd.h in AVX2 with FMA and F16C (x86-64-v3): 8 lanes. */
#ifndef TGI_CPU_SIMD_AVX2_H
#define TGI_CPU_SIMD_AVX2_H

#include <immintrin.h>

#define TGI_LANES 8

typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm;

TGI_INLINE vf vf_set1(float v)
{
  return _mm256_set1_ps(v);
}

TGI_INLINE vf vf_zero(void)
{
  return _mm256_setzero_ps();
}

TGI_INLINE vf vf_fma(vf a, vf b, vf c)
{
  return _mm256_fmadd_ps(a, b, c);
}

/** As in maxps: the second operand where either is NaN. */
TGI_INLINE vf vf_max(vf a, vf b)
{
  return _mm256_max_ps(a, b);
}

TGI_INLINE vf vf_min(vf a, vf b)
{
  return _mm256_min_ps(a, b);
}

TGI_INLINE vf vf_sqrt(vf a)
{
  return _mm256_sqrt_ps(a);
}

TGI_INLINE vf vf_abs(vf a)
{
  return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

/** Nearest integer, ties to even. */
TGI_INLINE vf vf_rint(vf a)
{
  return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* 2^n for an integral n in [-126, 127]. */
TGI_INLINE vf power_of_two(vf n)
{
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}

/** a * 2^n for an integral n with |n| <= 252; overflow and underflow to denormals included. */
TGI_INLINE vf vf_scale2(vf a, vf n)
{
  const vf half = vf_rint(n * vf_set1(0.5f));
  return a * power_of_two(half) * power_of_two(n - half);
}

TGI_INLINE vm vf_lt(vf a, vf b)
{
  return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}

TGI_INLINE vm vf_le(vf a, vf b)
{
  return _mm256_cmp_ps(a, b, _CMP_LE_OQ);
}

TGI_INLINE vf vf_select(vm m, vf yes, vf no)
{
  return _mm256_blendv_ps(no, yes, m);
}

TGI_INLINE vf vf_copysign(vf magnitude, vf sign)
{
  const vf bit = _mm256_set1_ps(-0.0f);
  return _mm256_or_ps(_mm256_and_ps(bit, sign), _mm256_andnot_ps(bit, magnitude));
}

TGI_INLINE float vf_sum(vf a)
{
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

/** In f64: what is added up with this loses no more than the lanes already have. */
TGI_INLINE double vf_sum_f64(vf a)
{
  const __m256d s =
      _mm256_cvtps_pd(_mm256_castps256_ps128(a)) + _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
  const __m128d t = _mm256_castpd256_pd128(s) + _mm256_extractf128_pd(s, 1);
  return _mm_cvtsd_f64(t) + _mm_cvtsd_f64(_mm_unpackhi_pd(t, t));
}

/** to[i] = the sum of a[i]. */
TGI_INLINE void vf_sums(const vf a[4], float to[4])
{
  const vf ab = _mm256_unpacklo_ps(a[0], a[1]) + _mm256_unpackhi_ps(a[0], a[1]);
  const vf cd = _mm256_unpacklo_ps(a[2], a[3]) + _mm256_unpackhi_ps(a[2], a[3]);
  const __m256d x = _mm256_castps_pd(ab), y = _mm256_castps_pd(cd);
  const vf all = _mm256_castpd_ps(_mm256_unpacklo_pd(x, y)) +
                 _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)); /* four sums in each half */
  _mm_storeu_ps(to, _mm256_castps256_ps128(all) + _mm256_extractf128_ps(all, 1));
}

TGI_INLINE float vf_hmax(vf a)
{
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

TGI_INLINE __m256i first_lanes(int64_t n)
{
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lane);
}

/** The first n lanes of v, 0 in the others. */
TGI_INLINE vf vf_first(vf v, int64_t n)
{
  return _mm256_and_ps(v, _mm256_castsi256_ps(first_lanes(n)));
}

/** The even and the odd ones of the 2 TGI_LANES values lo, hi. */
TGI_INLINE void vf_unzip(vf lo, vf hi, vf *even, vf *odd)
{
  const __m256d e = _mm256_castps_pd(_mm256_shuffle_ps(lo, hi, 0x88));
  const __m256d o = _mm256_castps_pd(_mm256_shuffle_ps(lo, hi, 0xdd));
  *even = _mm256_castpd_ps(_mm256_permute4x64_pd(e, 0xd8));
  *odd = _mm256_castpd_ps(_mm256_permute4x64_pd(o, 0xd8));
}

/** The other way: even[0], odd[0], even[1], ... */
TGI_INLINE void vf_zip(vf even, vf odd, vf *lo, vf *hi)
{
  const vf l = _mm256_unpacklo_ps(even, odd), h = _mm256_unpackhi_ps(even, odd);
  *lo = _mm256_permute2f128_ps(l, h, 0x20);
  *hi = _mm256_permute2f128_ps(l, h, 0x31);
}

/* f32 */
TGI_INLINE vf vf_load_f32(const void *p)
{
  return _mm256_loadu_ps(p);
}

TGI_INLINE vf vf_load_part_f32(const void *p, int64_t n)
{
  return _mm256_maskload_ps(p, first_lanes(n));
}

TGI_INLINE void vf_store_f32(void *p, vf v)
{
  _mm256_storeu_ps(p, v);
}

TGI_INLINE void vf_store_part_f32(void *p, int64_t n, vf v)
{
  _mm256_maskstore_ps(p, first_lanes(n), v);
}

TGI_INLINE void vf_stream_f32(void *p, vf v)
{
  _mm256_stream_ps(p, v);
}

/* AVX2 masks no 16-bit lanes: the ends of rows go through a buffer. */
TGI_INLINE __m128i load_halves(const void *p, int64_t n)
{
  uint16_t h[8] = {0};
  memcpy(h, p, (size_t)n * sizeof h[0]);
  return _mm_loadu_si128((const void *)h);
}

TGI_INLINE void store_halves(void *p, int64_t n, __m128i v)
{
  uint16_t h[8];
  _mm_storeu_si128((void *)h, v);
  memcpy(p, h, (size_t)n * sizeof h[0]);
}

/* bf16 */
TGI_INLINE vf widen_bf16(__m128i h)
{
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* The result in the upper half of each lane, and what is left of the sum below. */
TGI_INLINE __m256i round_upper(vf v)
{
  const __m256i u = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, quiet, nan);
}

TGI_INLINE __m128i narrow_bf16(vf v)
{
  const __m256i wide = _mm256_srli_epi32(round_upper(v), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
}

TGI_INLINE vf vf_load_bf16(const void *p)
{
  return widen_bf16(_mm_loadu_si128(p));
}

TGI_INLINE vf vf_load_part_bf16(const void *p, int64_t n)
{
  return widen_bf16(load_halves(p, n));
}

TGI_INLINE void vf_store_bf16(void *p, vf v)
{
  _mm_storeu_si128(p, narrow_bf16(v));
}

TGI_INLINE void vf_store_part_bf16(void *p, int64_t n, vf v)
{
  store_halves(p, n, narrow_bf16(v));
}

TGI_INLINE void vf_stream_bf16(void *p, vf v)
{
  _mm_stream_si128(p, narrow_bf16(v));
}

TGI_INLINE vf vf_round_bf16(vf v)
{
  const __m256i upper = _mm256_set1_epi32((int)0xffff0000u);
  return _mm256_castsi256_ps(_mm256_and_si256(round_upper(v), upper));
}

/* Two vectors at once: one pack serves both. */
TGI_INLINE __m256i narrow_two_bf16(vf a, vf b)
{
  const __m256i low = _mm256_srli_epi32(round_upper(a), 16);
  const __m256i high = _mm256_srli_epi32(round_upper(b), 16);
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
}

TGI_INLINE void vf_load_two_bf16(const void *p, vf v[2])
{
  v[0] = vf_load_bf16(p);
  v[1] = vf_load_bf16((const char *)p + 16);
}

TGI_INLINE void vf_store_two_bf16(void *p, const vf v[2])
{
  _mm256_storeu_si256(p, narrow_two_bf16(v[0], v[1]));
}

TGI_INLINE void vf_stream_two_bf16(void *p, const vf v[2])
{
  _mm256_stream_si256(p, narrow_two_bf16(v[0], v[1]));
}

/* A pair fills a lane: no lane moves. */
TGI_INLINE void vf_load_pairs_bf16(const void *p, vf *even, vf *odd)
{
  const __m256i u = _mm256_loadu_si256(p);
  const __m256i upper = _mm256_set1_epi32((int)0xffff0000u);
  *even = _mm256_castsi256_ps(_mm256_slli_epi32(u, 16));
  *odd = _mm256_castsi256_ps(_mm256_and_si256(u, upper));
}

TGI_INLINE __m256i narrow_pairs_bf16(vf even, vf odd)
{
  return _mm256_blend_epi16(_mm256_srli_epi32(round_upper(even), 16), round_upper(odd), 0xaa);
}

TGI_INLINE void vf_store_pairs_bf16(void *p, vf even, vf odd)
{
  _mm256_storeu_si256(p, narrow_pairs_bf16(even, odd));
}

TGI_INLINE void vf_stream_pairs_bf16(void *p, vf even, vf odd)
{
  _mm256_stream_si256(p, narrow_pairs_bf16(even, odd));
}

/* f16 */
TGI_INLINE __m128i narrow_f16(vf v)
{
  return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

TGI_INLINE vf vf_load_f16(const void *p)
{
  return _mm256_cvtph_ps(_mm_loadu_si128(p));
}

TGI_INLINE vf vf_load_part_f16(const void *p, int64_t n)
{
  return _mm256_cvtph_ps(load_halves(p, n));
}

TGI_INLINE void vf_store_f16(void *p, vf v)
{
  _mm_storeu_si128(p, narrow_f16(v));
}

TGI_INLINE void vf_store_part_f16(void *p, int64_t n, vf v)
{
  store_halves(p, n, narrow_f16(v));
}

TGI_INLINE void vf_stream_f16(void *p, vf v)
{
  _mm_stream_si128(p, narrow_f16(v));
}

TGI_INLINE vf vf_round_f16(vf v)
{
  return _mm256_cvtph_ps(narrow_f16(v));
}

/** Makes streamed stores visible before anything that follows. */
TGI_INLINE void vf_stream_fence(void)
{
  _mm_sfence();
}

/* Neighbours: lanes 2 i and 2 i + 1. */

/** Each lane's neighbour: 1, 0, 3, 2, ... */
TGI_INLINE vf vf_swap_neighbours(vf a)
{
  return _mm256_permute_ps(a, 0xb1);
}

#endif
