/**
 * Words of 64 bits that blocks exchange: a value (an f32, or two bf16) and the epoch that it is of,
 * stored and loaded at once. The load that sees the epoch has the value: no barrier of the grid, no
 * fence and no flag.
 *
 * A word is written again only by a block that has read what followed from it, for which every
 * block wrote something. Epochs never repeat while the words' memory is not cleared.
 */
#ifndef TGI_CUDA_DECODE_WORDS_CUH
#define TGI_CUDA_DECODE_WORDS_CUH

#include "cuda/decode/decode_shape.cuh"

inline namespace TGI_CUDA_ENTRY
{

using decode_word = unsigned long long;

__device__ __forceinline__ void put_word(decode_word *to, uint32_t value, uint32_t epoch)
{
  asm volatile("st.relaxed.gpu.global.b64 [%0], %1;"
               :
               : "l"(to), "l"((decode_word)epoch << 32 | value)
               : "memory");
}

__device__ __forceinline__ void put_float(decode_word *to, float value, uint32_t epoch)
{
  put_word(to, __float_as_uint(value), epoch);
}

/** To each of the copies, which are `step` words apart. */
__device__ __forceinline__ void put_copies(decode_word *to, int step, uint32_t value,
                                           uint32_t epoch)
{
#pragma unroll
  for (int i = 0; i < kDecodeCopies; i++) {
    put_word(to + (size_t)i * step, value, epoch);
  }
}

__device__ __forceinline__ decode_word get_word(const decode_word *from)
{
  decode_word v;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(v) : "l"(from) : "memory");
  return v;
}

__device__ __forceinline__ ulonglong2 get_words(const decode_word *from)
{
  ulonglong2 v;
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(v.x), "=l"(v.y)
               : "l"(from)
               : "memory");
  return v;
}

__device__ __forceinline__ bool is_of(decode_word v, uint32_t epoch)
{
  return (uint32_t)(v >> 32) == epoch;
}

__device__ __forceinline__ float float_of(decode_word v)
{
  return __uint_as_float((uint32_t)v);
}

/** Ends the kernel with an error where words do not come: seconds, so that a fault of ours is no
 * device that hangs. */
struct decode_watch {
  int polls;
};

__device__ __forceinline__ void keep_watch(decode_watch &w)
{
  if (++w.polls > 1 << 22) {
    __trap();
  }
}

__device__ __forceinline__ uint32_t pack_pair(float a, float b)
{
  const __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
  uint32_t bits;
  memcpy(&bits, &v, sizeof bits);
  return bits;
}

__device__ __forceinline__ float low_of(uint32_t pair)
{
  return __uint_as_float(pair << 16);
}

__device__ __forceinline__ float high_of(uint32_t pair)
{
  return __uint_as_float(pair & 0xffff0000u);
}

} // namespace TGI_CUDA_ENTRY

#endif
