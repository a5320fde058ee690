/**
 * Products of a warp's 16 rows with 8 columns, 16 deep in f16 or bf16, 8 deep in TF32, with f32
 * sums (PTX: mma.sync); matrices of 8 x 8 from shared memory to a warp's registers (ldmatrix);
 * copies to shared memory beside the thread's other work (cp.async). From compute capability 8.0
 * on.
 *
 * Sums d of lane l (g = l / 4, q = l % 4): d[i] has row g + 8 (i / 2), column 2 q + i % 2. Of A,
 * a[i] has row g + 8 (i % 2), columns 8 (i / 2) + 2 q and the next; of B, b[i] has rows
 * 8 i + 2 q and the next, column g. So sums of two products side by side, rounded in pairs, are the
 * four registers of A. In TF32 a[i] has column 4 (i / 2) + q, and b[i] row 4 i + q: where columns
 * of A are taken for q and q + 4 that are 2 q and 2 q + 1, with B's rows in the same order, sums of
 * one product are its registers (tf32.cuh).
 */
#ifndef TGI_CUDA_MMA_CUH
#define TGI_CUDA_MMA_CUH

#include "cuda/shared_memory.cuh"
#include "cuda/tf32.cuh"

inline namespace TGI_CUDA_ENTRY
{

#define MMA_SYNC(depth, type)                                                                      \
  asm volatile("mma.sync.aligned.m16n8" depth ".row.col.f32." type "." type ".f32 "                \
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"               \
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                    \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c0), "f"(c1),   \
                 "f"(c2), "f"(c3))

/** d = a b, plus d if `add`. TF32: of operands that are rounded. */
template <typename T>
__device__ __forceinline__ void multiply_small(float *d, const uint32_t (&a)[4], uint32_t b0,
                                               uint32_t b1, bool add)
{
  const float c0 = add ? d[0] : 0, c1 = add ? d[1] : 0, c2 = add ? d[2] : 0, c3 = add ? d[3] : 0;
  if constexpr (kIsTf32<T>) {
    MMA_SYNC("k8", "tf32");
  } else if constexpr (kIsBf16<T>) {
    MMA_SYNC("k16", "bf16");
  } else {
    MMA_SYNC("k16", "f16");
  }
}

/** Four matrices; lane l has the address of row l % 8 of matrix l / 8, and gets of each elements
 * 2 (l % 4) and the next of row l / 4. */
__device__ __forceinline__ void load_matrices(uint32_t (&m)[4], uint32_t row)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(row));
}

/** The same of the matrices transposed. */
__device__ __forceinline__ void load_matrices_turned(uint32_t (&m)[4], uint32_t row)
{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(row));
}

/** 16 bytes from memory to shared memory, zeros if not `exists`; the address is legal either way.
 * Returns at once. */
__device__ __forceinline__ void copy_chunk(uint32_t to, const void *from, bool exists)
{
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(exists ? 16 : 0)
               : "memory");
}

/** The same of 16 bytes that exist. */
__device__ __forceinline__ void copy_vector(uint32_t to, const void *from)
{
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from))
               : "memory");
}

/** The same of the first `bytes` of 16, with zeros behind them. */
__device__ __forceinline__ void copy_part(uint32_t to, const void *from, int bytes)
{
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
}

/** The same of 4 bytes. */
__device__ __forceinline__ void copy_word(uint32_t to, const void *from, bool exists)
{
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               :
               : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(exists ? 4 : 0)
               : "memory");
}

/** Ends a group of this thread's copies. */
__device__ __forceinline__ void commit_copies()
{
  asm volatile("cp.async.commit_group;" : : : "memory");
}

/** Until at most kGroups of this thread's latest groups are under way. */
template <int kGroups> __device__ __forceinline__ void wait_for_copies()
{
  asm volatile("cp.async.wait_group %0;" : : "n"(kGroups) : "memory");
}

} // namespace TGI_CUDA_ENTRY

#endif
