/**
 * MXFP4 codes as operands of tensor cores, from compute capability 8.0 on.
 *
 * Two codes 16 bits apart in a word become a pair of 16-bit floats by shifts: sign and magnitude go
 * to the top of the sign, and of the exponent and mantissa. What they mean there is the value times
 * 2^-126 in bf16, which a multiplication takes back, and times 2^-14 in f16, which goes to the
 * sums: tensor cores read denormal f16 exactly.
 */
#ifndef TGI_OPS_MXFP4_CODES_SM80_CUH
#define TGI_OPS_MXFP4_CODES_SM80_CUH

#include "cuda/half_pair.cuh"
#include "cuda/mma.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** a * b of pairs of bf16, rounded once; denormal ones are kept. */
__device__ __forceinline__ uint32_t multiply_bf16(uint32_t a, uint32_t b)
{
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(0x80008000u));
  return d;
}

/** Bytes of a and b (0 to 3, 4 to 7) that the digits of `order` name, the lowest first. */
__device__ __forceinline__ uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t order)
{
  return __byte_perm(a, b, order);
}

/** What sums of products with code_pair are short of. */
template <typename T> constexpr float kCodeFactor = kIsBf16<T> ? 1.0f : 16384.0f;

/** Codes j and j + 4 of a word, 0 <= j < 4. */
template <typename T> __device__ __forceinline__ uint32_t code_pair(uint32_t word, int j)
{
  const uint32_t top = word << (12 - 4 * j), sign = top & 0x80008000u;
  if constexpr (kIsBf16<T>) {
    return multiply_bf16(sign | (top >> 6 & 0x01c001c0u), 0x7e807e80u);
  } else {
    return sign | (top >> 3 & 0x0e000e00u);
  }
}

/** 2^(scale - 127). */
__device__ __forceinline__ float scale_of(uint32_t scale)
{
  return __uint_as_float(scale ? scale << 23 : 0x400000u);
}

/** The same of two scales as bf16. */
__device__ __forceinline__ uint32_t scale_pair(uint32_t low, uint32_t high)
{
  return (low ? low << 7 : 0x40u) | (high ? high << 7 : 0x40u) << 16;
}

} // namespace TGI_CUDA_ENTRY

#endif
