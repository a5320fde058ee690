/**
 * One vector of floats, in the width of the instruction set that this file is compiled for: the
 * vocabulary of every CPU kernel. A kernel source is compiled once per instruction set; it is
 * written once, in these words.
 *
 *   vf        TGI_LANES floats; + - * / work on it
 *   vi        as many int32
 *   vm        the result of a comparison
 *
 * Loads and stores take the dtype as an argument. Where it is a constant (see TGI_SWITCH_FLOAT)
 * the compiler keeps the one conversion that is needed. 16-bit values are rounded to nearest even,
 * with the bits of core/values/half.h.
 */
#ifndef TGI_CPU_SIMD_H
#define TGI_CPU_SIMD_H

#include "core/values/half.h"
#include "tegula/tensor.h"
#include <stdbool.h>

/* Builds under sanitizers leave it to the compiler: with their checks in it, code that is inlined
 * for every dtype takes minutes to compile. */
#ifdef TGI_INLINE_FREELY
#define TGI_INLINE static inline
#else
#define TGI_INLINE static inline __attribute__((always_inline))
#endif

#if defined(__AVX512F__)
#include "cpu/simd_avx512.h" // IWYU pragma: export
#elif defined(__AVX2__)
#include "cpu/simd_avx2.h" // IWYU pragma: export
#else
#include "cpu/simd_generic.h" // IWYU pragma: export
#endif

/** Runs the statements with T a constant equal to `dtype`, one of f32, f16 and bf16. */
#define TGI_SWITCH_FLOAT(dtype, T, ...)                                                            \
  switch (dtype) {                                                                                 \
  case TG_F32: {                                                                                   \
    enum { T = TG_F32 };                                                                           \
    __VA_ARGS__;                                                                                   \
  } break;                                                                                         \
  case TG_F16: {                                                                                   \
    enum { T = TG_F16 };                                                                           \
    __VA_ARGS__;                                                                                   \
  } break;                                                                                         \
  default: {                                                                                       \
    enum { T = TG_BF16 };                                                                          \
    __VA_ARGS__;                                                                                   \
  } break;                                                                                         \
  }

TGI_INLINE int64_t tgi_min_i64(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

TGI_INLINE const void *at(const void *base, int t, int64_t i)
{
  return (const char *)base + i * (t == TG_F32 ? 4 : 2);
}

/** Asks the L2 cache for the line of base[i], which need not be readable. */
TGI_INLINE void tgi_prefetch(const void *base, int t, int64_t i)
{
  __builtin_prefetch(at(base, t, i), 0, 2);
}

/** TGI_LANES elements from base[i] on. */
TGI_INLINE vf vf_load(const void *base, int t, int64_t i)
{
  const void *p = at(base, t, i);
  return t == TG_F32 ? vf_load_f32(p) : t == TG_BF16 ? vf_load_bf16(p) : vf_load_f16(p);
}

/** The 2 * TGI_LANES elements from base[i] on: bf16 those at even places, then those at odd ones,
 * which is cheaper; other types in order. */
TGI_INLINE void vf_load_apart(const void *base, int t, int64_t i, vf *a, vf *b)
{
  if (t == TG_BF16) {
    vf_load_pairs_bf16(at(base, t, i), a, b);
  } else {
    *a = vf_load(base, t, i);
    *b = vf_load(base, t, i + TGI_LANES);
  }
}

TGI_INLINE void vf_store(void *base, int t, int64_t i, vf v)
{
  void *p = (char *)base + i * (t == TG_F32 ? 4 : 2);
  if (t == TG_F32) {
    vf_store_f32(p, v);
  } else if (t == TG_BF16) {
    vf_store_bf16(p, v);
  } else {
    vf_store_f16(p, v);
  }
}

/** The n <= TGI_LANES elements from base[i] on; the lanes past them are 0. */
TGI_INLINE vf vf_load_part(const void *base, int t, int64_t i, int64_t n)
{
  const void *p = at(base, t, i);
  return t == TG_F32    ? vf_load_part_f32(p, n)
         : t == TG_BF16 ? vf_load_part_bf16(p, n)
                        : vf_load_part_f16(p, n);
}

TGI_INLINE void vf_store_part(void *base, int t, int64_t i, int64_t n, vf v)
{
  void *p = (char *)base + i * (t == TG_F32 ? 4 : 2);
  if (t == TG_F32) {
    vf_store_part_f32(p, n, v);
  } else if (t == TG_BF16) {
    vf_store_part_bf16(p, n, v);
  } else {
    vf_store_part_f16(p, n, v);
  }
}

/** vf_load_part with `rest` in the lanes past the n elements. */
TGI_INLINE vf vf_load_part_or(const void *base, int t, int64_t i, int64_t n, float rest)
{
  float lane[TGI_LANES];
  vf_store_f32(lane, vf_set1(rest));
  vf_store_part_f32(lane, n, vf_load_part(base, t, i, n));
  return vf_load_f32(lane);
}

/** vf_load_part, or vf_load where n is a constant of a whole vector. */
TGI_INLINE vf vf_load_up_to(const void *base, int t, int64_t i, int64_t n)
{
  return n == TGI_LANES ? vf_load(base, t, i) : vf_load_part(base, t, i, n);
}

/** Like vf_store, past the caches; the address must be aligned (see tgi_streamable). */
TGI_INLINE void vf_stream(void *base, int t, int64_t i, vf v)
{
  void *p = (char *)base + i * (t == TG_F32 ? 4 : 2);
  if (t == TG_F32) {
    vf_stream_f32(p, v);
  } else if (t == TG_BF16) {
    vf_stream_bf16(p, v);
  } else {
    vf_stream_f16(p, v);
  }
}

/** True if every row of a view of rank 1 or more starts at an address that vf_stream takes. */
static inline bool tgi_streamable(const void *data, int64_t row_stride, size_t element_bytes)
{
  return (uintptr_t)data % 64 == 0 && (size_t)row_stride * element_bytes % 64 == 0;
}

/** vf_store or vf_stream: the kernel's plan decides. */
TGI_INLINE void vf_put(void *base, int t, int64_t i, vf v, bool stream)
{
  if (stream) {
    vf_stream(base, t, i, v);
  } else {
    vf_store(base, t, i, v);
  }
}

/** vf_store_part, or vf_put where n is a constant of a whole vector. */
TGI_INLINE void vf_put_up_to(void *base, int t, int64_t i, int64_t n, vf v, bool stream)
{
  if (n == TGI_LANES) {
    vf_put(base, t, i, v, stream);
  } else {
    vf_store_part(base, t, i, n, v);
  }
}

/** Two vectors from base[i] on; for bf16 in fewer steps than one after the other. */
TGI_INLINE void vf_load_two(const void *base, int t, int64_t i, vf v[2])
{
  if (t == TG_BF16) {
    vf_load_two_bf16(at(base, t, i), v);
  } else {
    v[0] = vf_load(base, t, i);
    v[1] = vf_load(base, t, i + TGI_LANES);
  }
}

TGI_INLINE void vf_put_two(void *base, int t, int64_t i, const vf v[2], bool stream)
{
  void *p = (char *)base + i * (t == TG_F32 ? 4 : 2);
  if (t != TG_BF16) {
    vf_put(base, t, i, v[0], stream);
    vf_put(base, t, i + TGI_LANES, v[1], stream);
  } else if (stream) {
    vf_stream_two_bf16(p, v);
  } else {
    vf_store_two_bf16(p, v);
  }
}

/** base[2 i], base[2 i + 2], ... and base[2 i + 1], base[2 i + 3], ... */
TGI_INLINE void vf_load_pairs(const void *base, int t, int64_t i, vf *even, vf *odd)
{
  if (t == TG_BF16) {
    vf_load_pairs_bf16(at(base, t, 2 * i), even, odd);
  } else {
    vf_unzip(vf_load(base, t, 2 * i), vf_load(base, t, 2 * i + TGI_LANES), even, odd);
  }
}

TGI_INLINE void vf_put_pairs(void *base, int t, int64_t i, vf even, vf odd, bool stream)
{
  void *p = (char *)base + 2 * i * (t == TG_F32 ? 4 : 2);
  if (t != TG_BF16) {
    vf v[2];
    vf_zip(even, odd, &v[0], &v[1]);
    vf_put_two(base, t, 2 * i, v, stream);
  } else if (stream) {
    vf_stream_pairs_bf16(p, even, odd);
  } else {
    vf_store_pairs_bf16(p, even, odd);
  }
}

/** The first n <= TGI_LANES of these pairs; the lanes past them are 0. */
TGI_INLINE void vf_load_pairs_part(const void *base, int t, int64_t i, int64_t n, vf *even, vf *odd)
{
  const int64_t low = tgi_min_i64(2 * n, TGI_LANES), high = 2 * n - low;
  vf_unzip(vf_load_part(base, t, 2 * i, low), vf_load_part(base, t, 2 * i + low, high), even, odd);
}

TGI_INLINE void vf_store_pairs_part(void *base, int t, int64_t i, int64_t n, vf even, vf odd)
{
  const int64_t low = tgi_min_i64(2 * n, TGI_LANES), high = 2 * n - low;
  vf v[2];
  vf_zip(even, odd, &v[0], &v[1]);
  vf_store_part(base, t, 2 * i, low, v[0]);
  vf_store_part(base, t, 2 * i + low, high, v[1]);
}

/** v rounded to the dtype and back; the identity for f32. */
TGI_INLINE vf vf_round(int t, vf v)
{
  return t == TG_F32 ? v : t == TG_BF16 ? vf_round_bf16(v) : vf_round_f16(v);
}

#endif
