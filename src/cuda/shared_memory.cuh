/** Shared memory by its addresses, as asynchronous copies and tensor cores' operands name it; and
 * barriers among some of a block's threads. */
#ifndef TGI_CUDA_SHARED_MEMORY_CUH
#define TGI_CUDA_SHARED_MEMORY_CUH

#include "cuda/launch.cuh"

inline namespace TGI_CUDA_ENTRY
{

__device__ __forceinline__ uint32_t shared_address(const void *mine)
{
  return (uint32_t)__cvta_generic_to_shared(mine);
}

/** 16 bytes, aligned. */
__device__ __forceinline__ void load_shared(uint32_t (&w)[4], uint32_t from)
{
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
               : "r"(from)
               : "memory");
}

/** 8 bytes, aligned. */
__device__ __forceinline__ void load_shared(uint32_t (&w)[2], uint32_t from)
{
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "r"(from) : "memory");
}

__device__ __forceinline__ uint32_t load_shared(uint32_t from)
{
  uint32_t w;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(w) : "r"(from) : "memory");
  return w;
}

__device__ __forceinline__ void store_shared(uint32_t to, uint32_t w0, uint32_t w1, uint32_t w2,
                                             uint32_t w3)
{
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "r"(to), "r"(w0), "r"(w1), "r"(w2), "r"(w3)
               : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t to, uint32_t w)
{
  asm volatile("st.shared.b32 [%0], %1;" : : "r"(to), "r"(w) : "memory");
}

/** Waits at barrier `id` (1 .. 15) until `threads`, whole warps, have come to it or arrived. */
__device__ __forceinline__ void sync_some(int id, int threads)
{
  asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(threads) : "memory");
}

/** Counts at the barrier without waiting. */
__device__ __forceinline__ void arrive_some(int id, int threads)
{
  asm volatile("bar.arrive %0, %1;" : : "r"(id), "r"(threads) : "memory");
}

} // namespace TGI_CUDA_ENTRY

#endif
