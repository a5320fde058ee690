/** cpu/simd.h in AVX-512 (x86-64-v4): 16 lanes. */
#ifndef TGI_CPU_SIMD_AVX512_H
#define TGI_CPU_SIMD_AVX512_H

#include <immintrin.h>

#define TGI_LANES 16

typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

TGI_INLINE vf vf_set1(float v)
{
  return _mm512_set1_ps(v);
}

TGI_INLINE vf vf_zero(void)
{
  return _mm512_setzero_ps();
}

TGI_INLINE vf vf_fma(vf a, vf b, vf c)
{
  return _mm512_fmadd_ps(a, b, c);
}

/** As in maxps: the second operand where either is NaN. */
TGI_INLINE vf vf_max(vf a, vf b)
{
  return _mm512_max_ps(a, b);
}

TGI_INLINE vf vf_min(vf a, vf b)
{
  return _mm512_min_ps(a, b);
}

TGI_INLINE vf vf_sqrt(vf a)
{
  return _mm512_sqrt_ps(a);
}

TGI_INLINE vf vf_abs(vf a)
{
  return _mm512_abs_ps(a);
}

/** Nearest integer, ties to even. */
TGI_INLINE vf vf_rint(vf a)
{
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/** a * 2^n for an integral n; overflow and underflow as in one rounding. */
TGI_INLINE vf vf_scale2(vf a, vf n)
{
  return _mm512_scalef_ps(a, n);
}

TGI_INLINE vm vf_lt(vf a, vf b)
{
  return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}

TGI_INLINE vm vf_le(vf a, vf b)
{
  return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}

TGI_INLINE vf vf_select(vm m, vf yes, vf no)
{
  return _mm512_mask_blend_ps(m, no, yes);
}

TGI_INLINE vf vf_copysign(vf magnitude, vf sign)
{
  const __m512i bit = _mm512_set1_epi32((int)0x80000000u);
  return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(bit, _mm512_castps_si512(sign),
                                                       _mm512_castps_si512(magnitude), 0xca));
}

TGI_INLINE float vf_sum(vf a)
{
  return _mm512_reduce_add_ps(a);
}

/** In f64: what is added up with this loses no more than the lanes already have. */
TGI_INLINE double vf_sum_f64(vf a)
{
  return _mm512_reduce_add_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(a)) +
                              _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)));
}

/** to[i] = the sum of a[i]. */
TGI_INLINE void vf_sums(const vf a[4], float to[4])
{
  const vf ab = _mm512_unpacklo_ps(a[0], a[1]) + _mm512_unpackhi_ps(a[0], a[1]);
  const vf cd = _mm512_unpacklo_ps(a[2], a[3]) + _mm512_unpackhi_ps(a[2], a[3]);
  const __m512d x = _mm512_castps_pd(ab), y = _mm512_castps_pd(cd);
  const vf all = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y)) +
                 _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)); /* four sums in each quarter */
  const __m256 half = _mm512_castps512_ps256(all) + _mm512_extractf32x8_ps(all, 1);
  _mm_storeu_ps(to, _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1));
}

TGI_INLINE float vf_hmax(vf a)
{
  return _mm512_reduce_max_ps(a);
}

TGI_INLINE __mmask16 first_lanes(int64_t n)
{
  return (__mmask16)((1u << n) - 1u);
}

/** The first n lanes of v, 0 in the others. */
TGI_INLINE vf vf_first(vf v, int64_t n)
{
  return _mm512_maskz_mov_ps(first_lanes(n), v);
}

/** The even and the odd ones of the 2 TGI_LANES values lo, hi. */
TGI_INLINE void vf_unzip(vf lo, vf hi, vf *even, vf *odd)
{
  const __m512i e = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i o = _mm512_add_epi32(e, _mm512_set1_epi32(1));
  *even = _mm512_permutex2var_ps(lo, e, hi);
  *odd = _mm512_permutex2var_ps(lo, o, hi);
}

/** The other way: even[0], odd[0], even[1], ... */
TGI_INLINE void vf_zip(vf even, vf odd, vf *lo, vf *hi)
{
  const __m512i l = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i h = _mm512_add_epi32(l, _mm512_set1_epi32(8));
  *lo = _mm512_permutex2var_ps(even, l, odd);
  *hi = _mm512_permutex2var_ps(even, h, odd);
}

/* f32 */
TGI_INLINE vf vf_load_f32(const void *p)
{
  return _mm512_loadu_ps(p);
}

TGI_INLINE vf vf_load_part_f32(const void *p, int64_t n)
{
  return _mm512_maskz_loadu_ps(first_lanes(n), p);
}

TGI_INLINE void vf_store_f32(void *p, vf v)
{
  _mm512_storeu_ps(p, v);
}

TGI_INLINE void vf_store_part_f32(void *p, int64_t n, vf v)
{
  _mm512_mask_storeu_ps(p, first_lanes(n), v);
}

TGI_INLINE void vf_stream_f32(void *p, vf v)
{
  _mm512_stream_ps(p, v);
}

/* bf16 */
TGI_INLINE vf widen_bf16(__m256i h)
{
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* The result in the upper half of each lane, and what is left of the sum below. Integer rounding:
 * VCVTNEPS2BF16 would flush denormals. */
TGI_INLINE __m512i round_upper(vf v)
{
  const __m512i u = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
  const __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
  return _mm512_mask_add_epi32(quiet, _mm512_cmp_ps_mask(v, v, _CMP_ORD_Q), u, bias);
}

TGI_INLINE __m256i narrow_bf16(vf v)
{
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_upper(v), 16));
}

TGI_INLINE vf vf_load_bf16(const void *p)
{
  return widen_bf16(_mm256_loadu_si256(p));
}

TGI_INLINE vf vf_load_part_bf16(const void *p, int64_t n)
{
  return widen_bf16(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}

TGI_INLINE void vf_store_bf16(void *p, vf v)
{
  _mm256_storeu_si256(p, narrow_bf16(v));
}

TGI_INLINE void vf_store_part_bf16(void *p, int64_t n, vf v)
{
  _mm256_mask_storeu_epi16(p, first_lanes(n), narrow_bf16(v));
}

TGI_INLINE void vf_stream_bf16(void *p, vf v)
{
  _mm256_stream_si256(p, narrow_bf16(v));
}

TGI_INLINE vf vf_round_bf16(vf v)
{
  const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
  return _mm512_castsi512_ps(_mm512_and_si512(round_upper(v), upper));
}

/* Two vectors at once: the upper and the lower halves of all lanes are gathered first, so that each
 * step of the rounding serves 32 values. */
TGI_INLINE __m512i narrow_two_bf16(vf a, vf b)
{
  if (_mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q)) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(narrow_bf16(a)), narrow_bf16(b), 1);
  }
  const __m512i even =
      _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26,
                       24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i one = _mm512_set1_epi16(1), odd = _mm512_add_epi16(even, one);
  const __m512i u = _mm512_castps_si512(a), v = _mm512_castps_si512(b);
  const __m512i upper = _mm512_permutex2var_epi16(u, odd, v);
  const __m512i lower = _mm512_permutex2var_epi16(u, even, v);
  const __m512i rest = _mm512_adds_epu16(lower, _mm512_and_si512(upper, one));
  const __mmask32 up = _mm512_cmpgt_epu16_mask(rest, _mm512_set1_epi16((short)0x8000));
  return _mm512_mask_add_epi16(upper, up, upper, one);
}

TGI_INLINE void vf_load_two_bf16(const void *p, vf v[2])
{
  v[0] = vf_load_bf16(p);
  v[1] = vf_load_bf16((const char *)p + 32);
}

TGI_INLINE void vf_store_two_bf16(void *p, const vf v[2])
{
  _mm512_storeu_si512(p, narrow_two_bf16(v[0], v[1]));
}

TGI_INLINE void vf_stream_two_bf16(void *p, const vf v[2])
{
  _mm512_stream_si512(p, narrow_two_bf16(v[0], v[1]));
}

/* A pair fills a lane: no lane moves. */
TGI_INLINE void vf_load_pairs_bf16(const void *p, vf *even, vf *odd)
{
  const __m512i u = _mm512_loadu_si512(p);
  const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
  *even = _mm512_castsi512_ps(_mm512_slli_epi32(u, 16));
  *odd = _mm512_castsi512_ps(_mm512_and_si512(u, upper));
}

TGI_INLINE __m512i narrow_pairs_bf16(vf even, vf odd)
{
  const __m512i low = _mm512_srli_epi32(round_upper(even), 16);
  return _mm512_mask_mov_epi16(low, 0xaaaaaaaau, round_upper(odd));
}

TGI_INLINE void vf_store_pairs_bf16(void *p, vf even, vf odd)
{
  _mm512_storeu_si512(p, narrow_pairs_bf16(even, odd));
}

TGI_INLINE void vf_stream_pairs_bf16(void *p, vf even, vf odd)
{
  _mm512_stream_si512(p, narrow_pairs_bf16(even, odd));
}

/* f16 */
TGI_INLINE __m256i narrow_f16(vf v)
{
  return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

TGI_INLINE vf vf_load_f16(const void *p)
{
  return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

TGI_INLINE vf vf_load_part_f16(const void *p, int64_t n)
{
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}

TGI_INLINE void vf_store_f16(void *p, vf v)
{
  _mm256_storeu_si256(p, narrow_f16(v));
}

TGI_INLINE void vf_store_part_f16(void *p, int64_t n, vf v)
{
  _mm256_mask_storeu_epi16(p, first_lanes(n), narrow_f16(v));
}

TGI_INLINE void vf_stream_f16(void *p, vf v)
{
  _mm256_stream_si256(p, narrow_f16(v));
}

TGI_INLINE vf vf_round_f16(vf v)
{
  return _mm512_cvtph_ps(narrow_f16(v));
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
  return _mm512_permute_ps(a, 0xb1);
}

#endif
