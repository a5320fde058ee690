/** Clusters: blocks on neighbouring multiprocessors that reach each other's shared memory. From
 * Hopper on. */
#ifndef TGI_CUDA_CLUSTER_CUH
#define TGI_CUDA_CLUSTER_CUH

#include "cuda/shared_memory.cuh"

inline namespace TGI_CUDA_ENTRY
{

__device__ __forceinline__ unsigned cluster_rank()
{
  unsigned v;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(v));
  return v;
}

__device__ __forceinline__ unsigned cluster_blocks()
{
  unsigned v;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(v));
  return v;
}

/** A barrier of all threads of the cluster. */
__device__ __forceinline__ void cluster_barrier(unsigned blocks)
{
  __syncwarp();
  if (blocks == 1) {
    __syncthreads();
    return;
  }
  asm volatile("barrier.cluster.arrive.release.aligned;\n\t"
               "barrier.cluster.wait.acquire.aligned;"
               :
               :
               : "memory");
}

/** The two halves of a barrier of a cluster of several blocks before which nothing was written but
 * barriers in shared memory. */
__device__ __forceinline__ void arrive_in_cluster()
{
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" : : : "memory");
}

/** The first half where other blocks' shared memory was read before. */
__device__ __forceinline__ void leave_cluster()
{
  asm volatile("barrier.cluster.arrive.release.aligned;" : : : "memory");
}

__device__ __forceinline__ void wait_in_cluster()
{
  asm volatile("barrier.cluster.wait.acquire.aligned;" : : : "memory");
}

/** Where what is at `mine` in this block is in another one. */
__device__ __forceinline__ uint32_t address_in(uint32_t mine, unsigned block)
{
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(mine), "r"(block));
  return there;
}

__device__ __forceinline__ uint32_t address_in(const void *mine, unsigned block)
{
  return address_in(shared_address(mine), block);
}

/** 16 bytes of a block of the cluster, from where address_in says. */
__device__ __forceinline__ float4 load_in_cluster(uint32_t from)
{
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(from)
               : "memory");
  return v;
}

/** How clusters of a kernel are started. Not to be moved: config points to the attributes. */
struct cluster_launch {
  cudaLaunchAttribute attributes[2]; /* blocks of a cluster; overlap */
  cudaLaunchConfig_t config;
};

/** The kernel may take `shared` bytes afterwards. */
inline cudaError_t prepare_clusters(const tg_context *ctx, const void *kernel, int blocks,
                                    int threads, size_t shared, cluster_launch *l)
{
  *l = {};
  l->attributes[0].id = cudaLaunchAttributeClusterDimension;
  l->attributes[0].val.clusterDim.x = (unsigned)blocks;
  l->attributes[0].val.clusterDim.y = l->attributes[0].val.clusterDim.z = 1;
  l->config.gridDim = dim3((unsigned)blocks);
  l->config.blockDim = dim3((unsigned)threads);
  l->config.dynamicSmemBytes = shared;
  l->config.stream = (cudaStream_t)ctx->device->stream;
  l->config.attrs = l->attributes;
  l->config.numAttrs = 1;
  return allow_shared(ctx, kernel, shared);
}

/** As launch_next: of a kernel that awaits the one before. */
inline void let_clusters_follow(cluster_launch *l)
{
  l->attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  l->attributes[1].val.programmaticStreamSerializationAllowed = 1;
  l->config.numAttrs = 2;
}

/** Clusters that run at once: fewer than multiprocessors / blocks where a group of multiprocessors
 * that can form them is no multiple of `blocks`. 0: none, or it could not be told. */
inline int clusters_at_once(const void *kernel, const cluster_launch &l)
{
  int n = 0;
  if (cudaOccupancyMaxActiveClusters(&n, kernel, &l.config) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return n;
}

/** Starts `clusters` clusters, one after prepare_clusters gave `e`. */
template <typename... Params>
tg_status launch_clusters(const tg_context *ctx, cudaError_t e, void (*kernel)(Params...),
                          cluster_launch *l, int clusters, typename same_type<Params>::type... args)
{
  if (e == cudaSuccess) {
    void *pointers[] = {(void *)&args...};
    l->config.gridDim.x = (unsigned)clusters * l->attributes[0].val.clusterDim.x;
    e = cudaLaunchKernelExC(&l->config, (const void *)kernel, pointers);
  }
  return e == cudaSuccess ? TG_OK : report_launch(ctx, e);
}

} // namespace TGI_CUDA_ENTRY

#endif
