/** cpu/simd.h in the compiler's own vectors: 4 lanes, on any processor. */
#ifndef TGI_CPU_SIMD_GENERIC_H
#define TGI_CPU_SIMD_GENERIC_H

#define TGI_LANES 4

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef int32_t vm __attribute__((vector_size(16)));

/* Conversions of 16-bit values are long here: called, so that kernels compile in seconds. */
#define TGI_CALLED static __attribute__((noinline, unused))

#define TGI_EACH_LANE(k) for (int k = 0; k < TGI_LANES; k++)

TGI_INLINE vf vf_set1(float v)
{
  return (vf){v, v, v, v};
}

TGI_INLINE vf vf_zero(void)
{
  return vf_set1(0);
}

/** Two roundings: a fused one would be a library call per lane. */
TGI_INLINE vf vf_fma(vf a, vf b, vf c)
{
  return a * b + c;
}

TGI_INLINE vf vf_select(vm m, vf yes, vf no)
{
  return (vf)(((vi)yes & m) | ((vi)no & ~m));
}

/** As in maxps: the second operand where either is NaN. */
TGI_INLINE vf vf_max(vf a, vf b)
{
  return vf_select(a > b, a, b);
}

TGI_INLINE vf vf_min(vf a, vf b)
{
  return vf_select(a < b, a, b);
}

TGI_INLINE vf vf_sqrt(vf a)
{
  TGI_EACH_LANE(k)
  {
    a[k] = sqrtf(a[k]);
  }
  return a;
}

TGI_INLINE vf vf_abs(vf a)
{
  return (vf)((vi)a & 0x7fffffff);
}

/** Nearest integer, ties to even. */
TGI_INLINE vf vf_rint(vf a)
{
  /* Below 2^22 adding 1.5 * 2^23 leaves the integer in the low bits; larger values are integers
   * or of no concern to the callers, which clamp first. */
  const vf magic = vf_set1(12582912.0f);
  const vf small = (a + magic) - magic;
  return vf_select(vf_abs(a) < vf_set1(4194304.0f), small, a);
}

/* 2^n for an integral n in [-126, 127]. */
TGI_INLINE vf power_of_two(vf n)
{
  return (vf)((__builtin_convertvector(n, vi) + 127) << 23);
}

/** a * 2^n for an integral n with |n| <= 252; overflow and underflow to denormals included. */
TGI_INLINE vf vf_scale2(vf a, vf n)
{
  const vf half = vf_rint(n * vf_set1(0.5f));
  return a * power_of_two(half) * power_of_two(n - half);
}

TGI_INLINE vm vf_lt(vf a, vf b)
{
  return a < b;
}

TGI_INLINE vm vf_le(vf a, vf b)
{
  return a <= b;
}

TGI_INLINE vf vf_copysign(vf magnitude, vf sign)
{
  return (vf)(((vi)magnitude & 0x7fffffff) | ((vi)sign & (int32_t)0x80000000u));
}

TGI_INLINE float vf_sum(vf a)
{
  return (a[0] + a[2]) + (a[1] + a[3]);
}

/** In f64: what is added up with this loses no more than the lanes already have. */
TGI_INLINE double vf_sum_f64(vf a)
{
  return ((double)a[0] + (double)a[2]) + ((double)a[1] + (double)a[3]);
}

/** to[i] = the sum of a[i]. */
TGI_INLINE void vf_sums(const vf a[4], float to[4])
{
  for (int i = 0; i < 4; i++) {
    to[i] = vf_sum(a[i]);
  }
}

TGI_INLINE float vf_hmax(vf a)
{
  const float x = a[0] > a[2] ? a[0] : a[2], y = a[1] > a[3] ? a[1] : a[3];
  return x > y ? x : y;
}

/** The first n lanes of v, 0 in the others. */
TGI_INLINE vf vf_first(vf v, int64_t n)
{
  const vi lane = {0, 1, 2, 3};
  return (vf)((vi)v & (lane < (int32_t)n));
}

/** The even and the odd ones of the 2 TGI_LANES values lo, hi. */
TGI_INLINE void vf_unzip(vf lo, vf hi, vf *even, vf *odd)
{
  *even = (vf){lo[0], lo[2], hi[0], hi[2]};
  *odd = (vf){lo[1], lo[3], hi[1], hi[3]};
}

/** The other way: even[0], odd[0], even[1], ... */
TGI_INLINE void vf_zip(vf even, vf odd, vf *lo, vf *hi)
{
  *lo = (vf){even[0], odd[0], even[1], odd[1]};
  *hi = (vf){even[2], odd[2], even[3], odd[3]};
}

/* f32 */
TGI_INLINE vf vf_load_f32(const void *p)
{
  vf v;
  memcpy(&v, p, sizeof v);
  return v;
}

TGI_INLINE vf vf_load_part_f32(const void *p, int64_t n)
{
  vf v = vf_zero();
  memcpy(&v, p, (size_t)n * sizeof(float));
  return v;
}

TGI_INLINE void vf_store_f32(void *p, vf v)
{
  memcpy(p, &v, sizeof v);
}

TGI_INLINE void vf_store_part_f32(void *p, int64_t n, vf v)
{
  memcpy(p, &v, (size_t)n * sizeof(float));
}

TGI_INLINE void vf_stream_f32(void *p, vf v)
{
  vf_store_f32(p, v);
}

/* 16-bit formats: lane by lane */
TGI_CALLED vf vf_load_part_bf16(const void *p, int64_t n)
{
  vf v = vf_zero();
  for (int64_t k = 0; k < n; k++) {
    v[k] = tgi_bf16_to_f32(((const uint16_t *)p)[k]);
  }
  return v;
}

TGI_CALLED void vf_store_part_bf16(void *p, int64_t n, vf v)
{
  for (int64_t k = 0; k < n; k++) {
    ((uint16_t *)p)[k] = tgi_f32_to_bf16(v[k]);
  }
}

TGI_CALLED vf vf_load_part_f16(const void *p, int64_t n)
{
  vf v = vf_zero();
  for (int64_t k = 0; k < n; k++) {
    v[k] = tgi_f16_to_f32(((const uint16_t *)p)[k]);
  }
  return v;
}

TGI_CALLED void vf_store_part_f16(void *p, int64_t n, vf v)
{
  for (int64_t k = 0; k < n; k++) {
    ((uint16_t *)p)[k] = tgi_f32_to_f16(v[k]);
  }
}

TGI_INLINE vf vf_load_bf16(const void *p)
{
  return vf_load_part_bf16(p, TGI_LANES);
}

TGI_INLINE void vf_store_bf16(void *p, vf v)
{
  vf_store_part_bf16(p, TGI_LANES, v);
}

TGI_INLINE void vf_stream_bf16(void *p, vf v)
{
  vf_store_bf16(p, v);
}

/* Two vectors at once, one after the other. */
TGI_INLINE void vf_load_two_bf16(const void *p, vf v[2])
{
  v[0] = vf_load_bf16(p);
  v[1] = vf_load_bf16((const uint16_t *)p + TGI_LANES);
}

TGI_INLINE void vf_store_two_bf16(void *p, const vf v[2])
{
  vf_store_bf16(p, v[0]);
  vf_store_bf16((uint16_t *)p + TGI_LANES, v[1]);
}

TGI_INLINE void vf_stream_two_bf16(void *p, const vf v[2])
{
  vf_store_two_bf16(p, v);
}

TGI_INLINE void vf_load_pairs_bf16(const void *p, vf *even, vf *odd)
{
  vf v[2];
  vf_load_two_bf16(p, v);
  vf_unzip(v[0], v[1], even, odd);
}

TGI_INLINE void vf_store_pairs_bf16(void *p, vf even, vf odd)
{
  vf v[2];
  vf_zip(even, odd, &v[0], &v[1]);
  vf_store_two_bf16(p, v);
}

TGI_INLINE void vf_stream_pairs_bf16(void *p, vf even, vf odd)
{
  vf_store_pairs_bf16(p, even, odd);
}

TGI_INLINE vf vf_load_f16(const void *p)
{
  return vf_load_part_f16(p, TGI_LANES);
}

TGI_INLINE void vf_store_f16(void *p, vf v)
{
  vf_store_part_f16(p, TGI_LANES, v);
}

TGI_INLINE void vf_stream_f16(void *p, vf v)
{
  vf_store_f16(p, v);
}

TGI_CALLED vf vf_round_bf16(vf v)
{
  TGI_EACH_LANE(k)
  {
    v[k] = tgi_bf16_to_f32(tgi_f32_to_bf16(v[k]));
  }
  return v;
}

TGI_CALLED vf vf_round_f16(vf v)
{
  TGI_EACH_LANE(k)
  {
    v[k] = tgi_f16_to_f32(tgi_f32_to_f16(v[k]));
  }
  return v;
}

TGI_INLINE void vf_stream_fence(void) {}

/* Neighbours: lanes 2 i and 2 i + 1. */

/** Each lane's neighbour: 1, 0, 3, 2, ... */
TGI_INLINE vf vf_swap_neighbours(vf a)
{
  return (vf){a[1], a[0], a[3], a[2]};
}

#endif
