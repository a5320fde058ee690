/**
 * f32 as tensor cores take it: TF32, which has f32's range and 10 bits of mantissa, in a register
 * of its own. From compute capability 8.0 on.
 *
 * Kernels whose T is f16 or bf16 (half_pair.cuh) take f32 by T = tf32. What counts 16-bit words
 * then counts two for an element.
 */
#ifndef TGI_CUDA_TF32_CUH
#define TGI_CUDA_TF32_CUH

#include "cuda/half_pair.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** Names the elements: f32 in memory, rounded where a product takes them. */
struct tf32 {
};

template <typename T> constexpr bool kIsTf32 = false;
template <> constexpr bool kIsTf32<tf32> = true;

/** 16-bit words of an element. */
template <typename T> constexpr int kHalves = kIsTf32<T> ? 2 : 1;

/** v in TF32, as a number: to nearest, ties away from zero. */
__device__ __forceinline__ float rounded_tf32(float v)
{
  uint32_t rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(v));
  return __uint_as_float(rounded);
}

/** The same as an operand. Products leave the 13 lowest bits out, so half of what they are worth is
 * added and no more, two instructions where cvt has three; all bits of a NaN may be set, and none
 * may become a number. */
__device__ __forceinline__ uint32_t operand_tf32(float v)
{
  const uint32_t bits = __float_as_uint(v);
  return v == v ? bits + 0x1000 : bits;
}

/** f32 from memory in registers of an operand; what has 16 bits is one already. */
template <typename T, int kN> __device__ __forceinline__ void round_words(uint32_t (&w)[kN])
{
  if constexpr (kIsTf32<T>) {
#pragma unroll
    for (int i = 0; i < kN; i++) {
      w[i] = operand_tf32(__uint_as_float(w[i]));
    }
  }
}

/** Sums, 16 rows by 2 kN columns, as registers of A, in the order of mma.cuh: depth 2 q and the
 * next of TF32 are columns q and q + 4 of a product. */
template <typename T, int kN>
__device__ __forceinline__ void round_sums(uint32_t (&to)[kHalves<T> * kN / 2],
                                           const float (&d)[kN])
{
  if constexpr (kIsTf32<T>) {
#pragma unroll
    for (int i = 0; i < kN; i += 4) {
      to[i] = operand_tf32(d[i]);
      to[i + 1] = operand_tf32(d[i + 2]);
      to[i + 2] = operand_tf32(d[i + 1]);
      to[i + 3] = operand_tf32(d[i + 3]);
    }
  } else {
    round_pairs<T>(to, d);
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
