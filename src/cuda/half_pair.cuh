/** Pairs of f16 or bf16 in a register, as tensor cores take them. */
#ifndef TGI_CUDA_HALF_PAIR_CUH
#define TGI_CUDA_HALF_PAIR_CUH

#include "cuda/vec.cuh"

inline namespace TGI_CUDA_ENTRY
{

template <typename T> constexpr bool kIsBf16 = false;
template <> constexpr bool kIsBf16<bf16> = true;

/** Two sums rounded to T, the first one in the low half. */
template <typename T> __device__ __forceinline__ uint32_t round_pair(float low, float high)
{
  uint32_t pair;
  if constexpr (kIsBf16<T>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

/** The low (0) or high (1) one of a pair. */
template <typename T> __device__ __forceinline__ float half_of(uint32_t pair, int which)
{
  const uint32_t bits = pair >> 16 * which & 0xffff;
  if constexpr (kIsBf16<T>) {
    return __uint_as_float(bits << 16);
  } else {
    return __half2float(__ushort_as_half((unsigned short)bits));
  }
}

/** Sums as registers of A. */
template <typename T, int kN>
__device__ __forceinline__ void round_pairs(uint32_t (&to)[kN / 2], const float (&d)[kN])
{
#pragma unroll
  for (int i = 0; i < kN / 2; i++) {
    to[i] = round_pair<T>(d[2 * i], d[2 * i + 1]);
  }
}

/** z + 0 * pair, element by element. */
template <typename T> __device__ __forceinline__ uint32_t add_zero_times(uint32_t z, uint32_t pair)
{
  if constexpr (kIsBf16<T>) {
    asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(z) : "r"(pair), "r"(0));
  } else {
    asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(z) : "r"(pair), "r"(0));
  }
  return z;
}

} // namespace TGI_CUDA_ENTRY

#endif
