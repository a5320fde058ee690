/** Integer weights, ranks and random bits of the contract, on CUDA: the bits of sample_draw.h and
 * of the CPU's kernels. Every f32 step is rounded for itself. */
#ifndef TGI_OPS_SAMPLE_DRAW_CUH
#define TGI_OPS_SAMPLE_DRAW_CUH

#include "ops/kernels.cuh"

extern "C" {
#include "ops/sample/sample_weight.h"
}

inline namespace TGI_CUDA_ENTRY
{

/** w of the contract for a z of at most `largest`. */
__device__ __forceinline__ uint64_t sample_weight(float z, float largest, float temperature)
{
  constexpr float c[kSamplePowers] = TGI_SAMPLE_POLYNOMIAL;
  const float shifted = (z - largest) / temperature * TGI_SAMPLE_LOG2_E;
  const float e = fmaxf(shifted, TGI_SAMPLE_LEAST_EXPONENT);
  const float n = rintf(e), f = e - n;
  float p = c[0];
#pragma unroll
  for (int k = 1; k < kSamplePowers; k++) {
    p = p * f + c[k];
  }
  return (uint64_t)__float2int_rn(p * 0x1p24f) << 16 >> __float2int_rn(-n);
}

/** An order of numbers as one of integers; -0 is 0. */
__device__ __forceinline__ uint32_t rank_key(float z)
{
  const uint32_t u = __float_as_uint(z == 0.0f ? 0.0f : z);
  return u >> 31 ? ~u : u | 0x80000000u;
}

/** The number that has a key. */
__device__ __forceinline__ float key_value(uint32_t key)
{
  return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

/** What top_k and top_p leave: keys above `key`, and of those equal to it the ids up to `last`. */
struct rank_cut {
  uint32_t key;
  int last;
};

__device__ __forceinline__ bool is_kept(const rank_cut &c, uint32_t key, int id)
{
  return key > c.key || (key == c.key && id <= c.last);
}

__device__ __forceinline__ float penalise(float z, float penalty)
{
  return z > 0 ? z / penalty : z * penalty;
}

/** ceil(share * sum), the product rounded to f64. */
__device__ __forceinline__ uint64_t share_of(float share, uint64_t sum)
{
  return (uint64_t)ceil((double)share * (double)sum);
}

/** Words 0 and 1 of Philox4x32-10 (core/values/philox.h), word 0 above. */
__device__ __forceinline__ uint64_t philox_bits(uint64_t key, uint64_t high, uint64_t low)
{
  uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  uint32_t c0 = (uint32_t)low, c1 = (uint32_t)(low >> 32);
  uint32_t c2 = (uint32_t)high, c3 = (uint32_t)(high >> 32);
  for (int round = 0; round < 10; round++) {
    const uint64_t p0 = (uint64_t)0xd2511f53u * c0, p1 = (uint64_t)0xcd9e8d57u * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return (uint64_t)c0 << 32 | c1;
}

} // namespace TGI_CUDA_ENTRY

#endif
