/**
 * Warpgroups: four warps that begin at a multiple of four. How they share out a block's registers,
 * barriers among some of a block's threads, and small matrices that a warp stores at once. From
 * Hopper on.
 */
#ifndef TGI_CUDA_WARPGROUP_CUH
#define TGI_CUDA_WARPGROUP_CUH

#include "cuda/cluster.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kWarpgroup = 128; /* threads */

/** From here on a thread of this warpgroup has kRegisters, fewer than at the kernel's start. The
 * kernel has __launch_bounds__(threads, 1). */
template <int kRegisters> __device__ __forceinline__ void give_registers()
{
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(kRegisters));
}

/** The same with more; waits until others have given theirs. */
template <int kRegisters> __device__ __forceinline__ void take_registers()
{
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(kRegisters));
}

/** Stores four 8 x 8 matrices of 16-bit elements. Lane l has elements 2 (l % 4) and the next of row
 * l / 4 of each, and the address of row l % 8 of matrix l / 8. */
__device__ __forceinline__ void store_matrices(uint32_t row, uint32_t m0, uint32_t m1, uint32_t m2,
                                               uint32_t m3)
{
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :
               : "r"(row), "r"(m0), "r"(m1), "r"(m2), "r"(m3)
               : "memory");
}

/** The same of the matrices transposed: the address is that of a column. */
__device__ __forceinline__ void store_matrices_turned(uint32_t column, uint32_t m0, uint32_t m1,
                                                      uint32_t m2, uint32_t m3)
{
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               :
               : "r"(column), "r"(m0), "r"(m1), "r"(m2), "r"(m3)
               : "memory");
}

} // namespace TGI_CUDA_ENTRY

#endif
