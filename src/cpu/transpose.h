/**
 * Transposition of a square of TGI_LANES vectors in registers: r[i][k] becomes r[k][i]. Lanes are
 * moved, never computed with, so 32-bit units of any meaning may lie in them.
 */
#ifndef TGI_CPU_TRANSPOSE_H
#define TGI_CPU_TRANSPOSE_H

#include "cpu/simd.h"
#include "cpu/unroll.h"

#if TGI_LANES == 16
/* Pairs of rows, then pairs of pairs within 128-bit quarters, then the quarters themselves. */
TGI_INLINE void vf_transpose(vf r[16])
{
  __m512 a[16], b[16];
  TGI_UNROLLED(i, 8)
  {
    a[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    a[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  TGI_UNROLLED(i, 8)
  {
    const int first = i / 2 * 4 + i % 2; /* of a[first] and a[first + 2] */
    const __m512d x = _mm512_castps_pd(a[first]), y = _mm512_castps_pd(a[first + 2]);
    b[2 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
    b[2 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
  }
  TGI_UNROLLED(c, 4)
  { /* column c of every quarter */
    const __m512 low02 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0x88);
    const __m512 low13 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0xdd);
    const __m512 high02 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0x88);
    const __m512 high13 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0xdd);
    r[c] = _mm512_shuffle_f32x4(low02, high02, 0x88);
    r[8 + c] = _mm512_shuffle_f32x4(low02, high02, 0xdd);
    r[4 + c] = _mm512_shuffle_f32x4(low13, high13, 0x88);
    r[12 + c] = _mm512_shuffle_f32x4(low13, high13, 0xdd);
  }
}
#elif TGI_LANES == 8
TGI_INLINE void vf_transpose(vf r[8])
{
  __m256 a[8], b[8];
  TGI_UNROLLED(i, 4)
  {
    a[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    a[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  TGI_UNROLLED(i, 4)
  {
    const int first = i / 2 * 4 + i % 2; /* of a[first] and a[first + 2] */
    const __m256d x = _mm256_castps_pd(a[first]), y = _mm256_castps_pd(a[first + 2]);
    b[2 * i] = _mm256_castpd_ps(_mm256_unpacklo_pd(x, y));
    b[2 * i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(x, y));
  }
  TGI_UNROLLED(c, 4)
  {
    r[c] = _mm256_permute2f128_ps(b[c], b[4 + c], 0x20);
    r[4 + c] = _mm256_permute2f128_ps(b[c], b[4 + c], 0x31);
  }
}
#else
TGI_INLINE void vf_transpose(vf r[TGI_LANES])
{
  const vf a = r[0], b = r[1], c = r[2], d = r[3];
  TGI_UNROLLED(k, TGI_LANES)
  {
    r[k] = (vf){a[k], b[k], c[k], d[k]};
  }
}
#endif

#endif
