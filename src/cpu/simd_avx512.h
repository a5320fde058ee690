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

/* Integer rounding: VCVTNEPS2BF16 would flush denormals. */
TGI_INLINE __m256i narrow_bf16(vf v)
{
  const __m512i u = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
  const __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_blend_epi32(nan, rounded, quiet), 16));
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
  return widen_bf16(narrow_bf16(v));
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
