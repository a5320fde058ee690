/**
 * Elements as they lie in memory, for kernels that rotate: loaded at once where they are aligned,
 * else one by one into the same places, and taken two at a time.
 */
#ifndef TGI_OPS_ELEMENT_BITS_CUH
#define TGI_OPS_ELEMENT_BITS_CUH

#include "cuda/x2.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** N elements as they lie in memory. */
template <typename T, int N> struct element_bits {
  uint32_t w[N * (int)sizeof(T) / 4];
};

/** Elements 2 i and 2 i + 1. */
template <typename T, int N>
__device__ __forceinline__ void get_two(float (&v)[2], const element_bits<T, N> &from, int i)
{
  if constexpr (sizeof(T) == 4) {
    v[0] = __uint_as_float(from.w[2 * i]);
    v[1] = __uint_as_float(from.w[2 * i + 1]);
  } else {
    const float2 two = two_to_f32<T>(from.w[i]);
    v[0] = two.x;
    v[1] = two.y;
  }
}

template <typename T, int N>
__device__ __forceinline__ void set_two(element_bits<T, N> &to, int i, const float (&v)[2])
{
  if constexpr (sizeof(T) == 4) {
    to.w[2 * i] = __float_as_uint(v[0]);
    to.w[2 * i + 1] = __float_as_uint(v[1]);
  } else {
    to.w[i] = two_from_f32<T>(v[0], v[1]);
  }
}

template <bool kAligned, typename T, int N>
__device__ __forceinline__ void load_bits(element_bits<T, N> &v, const T *from)
{
  constexpr int kWords = N * (int)sizeof(T) / 4, kAtOnce = kWords < 4 ? kWords : 4;
  if constexpr (kAligned) {
    const auto *packs = reinterpret_cast<const pack<uint32_t, kAtOnce> *>(from);
#pragma unroll
    for (int i = 0; i < kWords; i += kAtOnce) {
      const pack<uint32_t, kAtOnce> p = packs[i / kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; j++) {
        v.w[i + j] = p.e[j];
      }
    }
  } else if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < kWords; i++) {
      v.w[i] = __float_as_uint(from[i]);
    }
  } else {
    const auto *e = reinterpret_cast<const uint16_t *>(from);
#pragma unroll
    for (int i = 0; i < kWords; i++) {
      v.w[i] = (uint32_t)e[2 * i] | (uint32_t)e[2 * i + 1] << 16;
    }
  }
}

template <bool kAligned, typename T, int N>
__device__ __forceinline__ void store_bits(T *to, const element_bits<T, N> &v)
{
  constexpr int kWords = N * (int)sizeof(T) / 4, kAtOnce = kWords < 4 ? kWords : 4;
  if constexpr (kAligned) {
    auto *words = reinterpret_cast<uint32_t *>(to);
#pragma unroll
    for (int i = 0; i < kWords; i += kAtOnce) {
      uint32_t w[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; j++) {
        w[j] = v.w[i + j];
      }
      store_words(words + i, w);
    }
  } else if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < kWords; i++) {
      to[i] = __uint_as_float(v.w[i]);
    }
  } else {
    auto *e = reinterpret_cast<uint16_t *>(to);
#pragma unroll
    for (int i = 0; i < kWords; i++) {
      e[2 * i] = (uint16_t)v.w[i];
      e[2 * i + 1] = (uint16_t)(v.w[i] >> 16);
    }
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
