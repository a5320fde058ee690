/**
 * Two elements of f16 or bf16 in a word, and instructions for both at once. Each rounds its exact
 * result to the dtype. Rounded to f32 before, products and sums with 1 have the same bits: so
 * formulas whose steps are rounded may take either way.
 */
#ifndef TGI_CUDA_X2_CUH
#define TGI_CUDA_X2_CUH

#include "cuda/vec.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** True where formulas with steps rounded to Step are computed on words: bf16 has these
 * instructions from 8.0 on. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <typename Step> constexpr bool kByX2 = sizeof(Step) == 2;
#else
template <typename Step> constexpr bool kByX2 = false;
#endif

template <typename T> struct x2_of;

template <> struct x2_of<f16> {
  using type = __half2;
};

template <> struct x2_of<bf16> {
  using type = __nv_bfloat162;
};

template <typename T> using x2 = typename x2_of<T>::type;

/** Both rounded to nearest even. */
__device__ __forceinline__ void to_x2(__half2 *to, float low, float high)
{
  *to = __floats2half2_rn(low, high);
}

__device__ __forceinline__ void to_x2(__nv_bfloat162 *to, float low, float high)
{
  *to = __floats2bfloat162_rn(low, high);
}

template <typename X2> __device__ __forceinline__ X2 x2_from_f32(float low, float high)
{
  X2 v;
  to_x2(&v, low, high);
  return v;
}

template <typename X2> __device__ __forceinline__ uint32_t word_of(X2 v)
{
  return *reinterpret_cast<const uint32_t *>(&v);
}

template <typename T> __device__ __forceinline__ x2<T> in_word(uint32_t w)
{
  return *reinterpret_cast<const x2<T> *>(&w);
}

/** The low half of a word is the first element. */
template <typename T> __device__ __forceinline__ float2 two_to_f32(uint32_t w);

template <> __device__ __forceinline__ float2 two_to_f32<bf16>(uint32_t w)
{
  return make_float2(__uint_as_float(w << 16), __uint_as_float(w & 0xffff0000u));
}

template <> __device__ __forceinline__ float2 two_to_f32<f16>(uint32_t w)
{
  return __half22float2(*reinterpret_cast<const __half2 *>(&w));
}

template <typename T> __device__ __forceinline__ uint32_t two_from_f32(float low, float high);

template <> __device__ __forceinline__ uint32_t two_from_f32<bf16>(float low, float high)
{
  const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t *>(&v);
}

template <> __device__ __forceinline__ uint32_t two_from_f32<f16>(float low, float high)
{
  const __half2 v = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t *>(&v);
}

/** -infinity becomes the lowest finite value; NaN stays. */
__device__ __forceinline__ __half2 finite_below(__half2 v)
{
  return __hmax2_nan(v, x2_from_f32<__half2>(-65504.0f, -65504.0f));
}

__device__ __forceinline__ __nv_bfloat162 finite_below(__nv_bfloat162 v)
{
  return __hmax2_nan(v, x2_from_f32<__nv_bfloat162>(-0x1.fep127f, -0x1.fep127f));
}

/** N words from an address aligned to them. */
template <typename T, int N> __device__ __forceinline__ void load(x2<T> (&v)[N], const T *from)
{
  const pack<T, 2 *N> p = *reinterpret_cast<const pack<T, 2 * N> *>(from);
#pragma unroll
  for (int i = 0; i < N; i++) {
    v[i] = x2<T>(p.e[2 * i], p.e[2 * i + 1]);
  }
}

template <typename T, int N> __device__ __forceinline__ void store(T *to, const x2<T> (&v)[N])
{
  pack<T, 2 * N> p;
#pragma unroll
  for (int i = 0; i < N; i++) {
    p.e[2 * i] = v[i].x;
    p.e[2 * i + 1] = v[i].y;
  }
  *reinterpret_cast<pack<T, 2 * N> *>(to) = p;
}

} // namespace TGI_CUDA_ENTRY

#endif
