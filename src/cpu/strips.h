/**
 * Strips of a row in f32: widened, computed, narrowed. For kernels that wait for memory or do
 * little with a row: their arithmetic then exists once instead of once for each dtype.
 */
#ifndef TGI_CPU_STRIPS_H
#define TGI_CPU_STRIPS_H

#include "cpu/simd.h"

/** A function of which a kernel has one copy, however often it calls it. */
#define TGI_ONE_COPY static __attribute__((noinline, unused))

TGI_INLINE void widen_strip(float *to, const void *from, int t, int64_t i, int64_t n)
{
  int64_t k = 0;
  for (; k + TGI_LANES <= n; k += TGI_LANES) {
    vf_store_f32(to + k, vf_load(from, t, i + k));
  }
  if (k < n) {
    vf_store_f32(to + k, vf_load_part(from, t, i + k, n - k));
  }
}

TGI_INLINE void narrow_strip(void *to, int t, int64_t i, int64_t n, const float *from)
{
  int64_t k = 0;
  for (; k + TGI_LANES <= n; k += TGI_LANES) {
    vf_store(to, t, i + k, vf_load_f32(from + k));
  }
  if (k < n) {
    vf_store_part(to, t, i + k, n - k, vf_load_f32(from + k));
  }
}

TGI_INLINE void round_strip(float *strip, int t, int64_t n)
{
  for (int64_t k = 0; k < n; k += TGI_LANES) {
    vf_store_f32(strip + k, vf_round(t, vf_load_f32(strip + k)));
  }
}

/** to[0 .. n) = from[i .. i + n); zeros up to a whole vector. */
TGI_ONE_COPY void tgi_widen(float *to, const void *from, int dtype, int64_t i, int64_t n)
{
  TGI_SWITCH_FLOAT(dtype, T, widen_strip(to, from, T, i, n));
}

/** to[i .. i + n) = from[0 .. n), rounded. */
TGI_ONE_COPY void tgi_narrow(void *to, int dtype, int64_t i, int64_t n, const float *from)
{
  TGI_SWITCH_FLOAT(dtype, T, narrow_strip(to, T, i, n, from));
}

TGI_INLINE void widen_pairs(float *even, float *odd, const void *from, int t, int64_t i, int64_t n)
{
  vf a, b;
  int64_t k = 0;
  for (; k + TGI_LANES <= n; k += TGI_LANES) {
    vf_load_pairs(from, t, i + k, &a, &b);
    vf_store_f32(even + k, a);
    vf_store_f32(odd + k, b);
  }
  if (k < n) {
    vf_load_pairs_part(from, t, i + k, n - k, &a, &b);
    vf_store_f32(even + k, a);
    vf_store_f32(odd + k, b);
  }
}

TGI_INLINE void narrow_pairs(void *to, int t, int64_t i, int64_t n, const float *even,
                             const float *odd)
{
  int64_t k = 0;
  for (; k + TGI_LANES <= n; k += TGI_LANES) {
    vf_put_pairs(to, t, i + k, vf_load_f32(even + k), vf_load_f32(odd + k), false);
  }
  if (k < n) {
    vf_store_pairs_part(to, t, i + k, n - k, vf_load_f32(even + k), vf_load_f32(odd + k));
  }
}

/** The same for pairs i .. i + n of a row of them: their first elements and their second ones. */
TGI_ONE_COPY void tgi_widen_pairs(float *even, float *odd, const void *from, int dtype, int64_t i,
                                  int64_t n)
{
  TGI_SWITCH_FLOAT(dtype, T, widen_pairs(even, odd, from, T, i, n));
}

TGI_ONE_COPY void tgi_narrow_pairs(void *to, int dtype, int64_t i, int64_t n, const float *even,
                                   const float *odd)
{
  TGI_SWITCH_FLOAT(dtype, T, narrow_pairs(to, T, i, n, even, odd));
}

/** The strip's whole vectors rounded to the dtype. */
TGI_ONE_COPY void tgi_round_strip(float *strip, int dtype, int64_t n)
{
  if (dtype == TG_F16) {
    round_strip(strip, TG_F16, n);
  } else if (dtype == TG_BF16) {
    round_strip(strip, TG_BF16, n);
  }
}

#endif
