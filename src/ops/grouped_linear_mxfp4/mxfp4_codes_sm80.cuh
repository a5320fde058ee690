/**
 * MXFP4 codes as operands of tensor cores, from compute capability 8.0 on.
 *
 * Two codes 16 bits apart in a word become a pair of 16-bit floats by shifts: sign and magnitude go
 * to the top of the sign, and of the exponent and mantissa. What they mean there is the value times
 * 2^-126 in bf16, and times 2^-14 in f16: tensor cores read denormal f16 exactly. A multiplication
 * makes half of the value of it, in bf16 here, in f16 of the sums. The other factor of 2 is in the
 * scales, which then are normal numbers with an exponent field of the byte plus 1.
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

/** What makes sums of products with half the values of those with code_pair. */
template <typename T> constexpr float kCodeFactor = kIsBf16<T> ? 1.0f : 8192.0f;

/** Codes j and j + 4 of a word, 0 <= j < 4; in bf16 half of them. */
template <typename T> __device__ __forceinline__ uint32_t code_pair(uint32_t word, int j)
{
  if constexpr (kIsBf16<T>) { /* a product with two powers of 2 is both shifts */
    const uint32_t codes = (j < 2 ? word : word >> 8) & (j % 2 == 0 ? 0x000f000fu : 0x00f000f0u);
    return multiply_bf16(codes * (j % 2 == 0 ? 0x1040u : 0x0104u) & 0x81c081c0u, 0x7e007e00u);
  } else {
    const uint32_t top = word << (12 - 4 * j);
    return (top & 0x80008000u) | (top >> 3 & 0x0e000e00u);
  }
}

/** 2^(s - 126) of byte i of four scales s. */
__device__ __forceinline__ float scale_at(uint32_t scales, int i)
{
  const uint32_t byte = i < 3 ? scales & 0xffu << 8 * i : scales >> 24;
  uint32_t bits;
  asm("mad.lo.u32 %0, %1, %2, %3;"
      : "=r"(bits)
      : "r"(byte), "r"(0x800000u >> 8 * (i % 3)), "r"(0x800000u));
  return __uint_as_float(bits);
}

/** The same of two scales as bf16. */
__device__ __forceinline__ uint32_t scale_pair(uint32_t low, uint32_t high)
{
  return ((low | high << 16) + 0x00010001u) << 7;
}

} // namespace TGI_CUDA_ENTRY

#endif
