/**
 * The 32-bit unit that packed operands consist of: one f32, or with TGI_GEMM_PAIRS two bf16 that
 * are neighbours in k (the lower k in the lower half). Vectors of units travel as vf.
 */
#ifndef TGI_CPU_GEMM_UNIT_H
#define TGI_CPU_GEMM_UNIT_H

#include "cpu/simd.h"

#ifdef TGI_GEMM_PAIRS

/* Elements of k in a unit; units that are added up in one go: a whole block, for what is lost there
 * is little beside the rounding of bf16. */
enum { TGI_UNIT_K = 2, TGI_CHAIN = 384 };

/** Runs the statements with T a constant equal to the dtype of an operand. */
#define TGI_SWITCH_UNIT(dtype, T, ...)                                                             \
  do {                                                                                             \
    enum { T = TG_BF16 };                                                                          \
    __VA_ARGS__;                                                                                   \
  } while (0)

TGI_INLINE vf unit_fma(vf a, vf b, vf c)
{
  return _mm512_dpbf16_ps(c, (__m512bh)_mm512_castps_si512(a), (__m512bh)_mm512_castps_si512(b));
}

/** The units of n <= 2 * TGI_LANES elements along k from base[i] on; zero past them. */
TGI_INLINE vf unit_load_along(const void *base, int t, int64_t i, int64_t n)
{
  const uint16_t *p = (const uint16_t *)base + i;
  const __mmask32 lanes = n >= 32 ? 0xffffffffu : (1u << n) - 1u;
  (void)t;
  return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(lanes, p));
}

/** TGI_LANES units across k from elements base[i...] and their successors in k, base[i + step...];
 * n <= TGI_LANES of them, zero past; `both` is false where k ends within the unit. */
TGI_INLINE vf unit_load_across(const void *base, int t, int64_t i, int64_t step, int64_t n,
                               bool both)
{
  const uint16_t *p = (const uint16_t *)base + i;
  const __mmask16 lanes = n >= 16 ? 0xffff : (__mmask16)((1u << n) - 1u);
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, p));
  __m512i high = _mm512_setzero_si512();
  (void)t;
  if (both) {
    high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, p + step));
  }
  return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

#else

/* One chain for a block of 384 would have up to 1.8 times the error of PyTorch's products, halves
 * have less than it; they cost 1 % of the time (thirds 3 %). */
enum { TGI_UNIT_K = 1, TGI_CHAIN = 192 };

#define TGI_SWITCH_UNIT TGI_SWITCH_FLOAT

TGI_INLINE vf unit_fma(vf a, vf b, vf c)
{
  return vf_fma(a, b, c);
}

TGI_INLINE vf unit_load_along(const void *base, int t, int64_t i, int64_t n)
{
  return n >= TGI_LANES ? vf_load(base, t, i) : vf_load_part(base, t, i, n);
}

TGI_INLINE vf unit_load_across(const void *base, int t, int64_t i, int64_t step, int64_t n,
                               bool both)
{
  (void)step;
  (void)both;
  return unit_load_along(base, t, i, n);
}

#endif

/** Units of k elements. */
static inline int64_t tgi_units(int64_t k)
{
  return (k + TGI_UNIT_K - 1) / TGI_UNIT_K;
}

#endif
