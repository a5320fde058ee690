/**
 * Barriers in shared memory that count arrivals and bytes (PTX: mbarrier), and the copies and
 * stores that count on them. From Hopper on.
 *
 * A barrier goes through phases; a phase is complete when all arrivals and all bytes that were
 * expected have come. Who waits names the phase's parity: 0 for the first one. A fresh barrier
 * counts as complete for parity 1.
 */
#ifndef TGI_CUDA_MBARRIER_CUH
#define TGI_CUDA_MBARRIER_CUH

#include "cuda/cluster.cuh"

inline namespace TGI_CUDA_ENTRY
{

struct alignas(8) mbarrier {
  uint64_t state;
};

/** Position in a ring of stages, and the parity of their barriers' phase there. */
template <int kStages> struct ring_turn {
  int stage = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void next()
  {
    stage = stage + 1 == kStages ? 0 : stage + 1;
    parity ^= stage == 0;
  }
};

/** By one thread; `publish_barriers` by the same one follows, then a barrier of the block, or of
 * the cluster if others arrive. */
__device__ __forceinline__ void init_barrier(mbarrier *b, unsigned arrivals)
{
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
               :
               : "r"(shared_address(b)), "r"(arrivals)
               : "memory");
}

__device__ __forceinline__ void publish_barriers()
{
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}

__device__ __forceinline__ void arrive(mbarrier *b)
{
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];"
               :
               : "r"(shared_address(b))
               : "memory");
}

/** Arrives at the barrier that is at `mine` in a block of the cluster. */
__device__ __forceinline__ void arrive_in(mbarrier *mine, unsigned block)
{
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];"
               :
               : "r"(address_in(mine, block))
               : "memory");
}

/** Arrives, and `bytes` more must come before the phase is complete. */
__device__ __forceinline__ void arrive_expecting(mbarrier *b, unsigned bytes)
{
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;"
               :
               : "r"(shared_address(b)), "r"(bytes)
               : "memory");
}

/** Arrives once the thread's asynchronous copies so far (cp.async) have come. */
__device__ __forceinline__ void arrive_with_copies(mbarrier *b)
{
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];"
               :
               : "r"(shared_address(b))
               : "memory");
}

/** Until the phase is complete. What threads of this block did before they arrived has been done;
 * what copies brought is there. */
__device__ __forceinline__ void wait_for(mbarrier *b, unsigned parity)
{
  uint32_t done;
  do {
    asm volatile("{\n\t"
                 ".reg .pred done;\n\t"
                 "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, done;\n\t"
                 "}"
                 : "=r"(done)
                 : "r"(shared_address(b)), "r"(parity)
                 : "memory");
  } while (!done);
}

/** The same, of threads and stores of the whole cluster. */
__device__ __forceinline__ void wait_for_cluster(mbarrier *b, unsigned parity)
{
  uint32_t done;
  do {
    asm volatile("{\n\t"
                 ".reg .pred done;\n\t"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%1], %2;\n\t"
                 "selp.u32 %0, 1, 0, done;\n\t"
                 "}"
                 : "=r"(done)
                 : "r"(shared_address(b)), "r"(parity)
                 : "memory");
  } while (!done);
}

/** Copies bytes, a multiple of 16, from 16-byte aligned memory to this block's shared memory; they
 * count on the barrier. By one thread; returns at once. */
__device__ __forceinline__ void bulk_load(void *to, const void *from, unsigned bytes, mbarrier *b)
{
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1], %2, [%3];"
               :
               : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes),
                 "r"(shared_address(b))
               : "memory");
}

/** Stores v at what is at `mine` in a block of the cluster; its 16 bytes count on the barrier that
 * is at `b` there. Returns at once. */
__device__ __forceinline__ void store_counted(float4 *mine, mbarrier *b, unsigned block, float4 v)
{
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
               "[%0], {%1, %2, %3, %4}, [%5];"
               :
               : "r"(address_in(mine, block)), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w),
                 "r"(address_in(b, block))
               : "memory");
}

/** The same of 8 bytes. */
__device__ __forceinline__ void store_counted(float2 *mine, mbarrier *b, unsigned block, float2 v)
{
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 "
               "[%0], {%1, %2}, [%3];"
               :
               : "r"(address_in(mine, block)), "f"(v.x), "f"(v.y), "r"(address_in(b, block))
               : "memory");
}

} // namespace TGI_CUDA_ENTRY

#endif
