/**
 * A tile of a dense product on Hopper whose sums are made in parts along k by the blocks of a
 * cluster, one tile for each cluster: so that a small result over many steps, such as the gradient
 * of a weight, occupies the device.
 *
 * When its part is done, each block leaves its sums where the stages were, every thread its own.
 * The tile's blocks of 64 rows and 128 bytes a row belong to the cluster's blocks in turns: the
 * owner adds up the sums of all parts, in their order, and stores the result.
 */
#ifndef TGI_CUDA_GEMM_SPLIT_SM90_CUH
#define TGI_CUDA_GEMM_SPLIT_SM90_CUH

#include "cuda/gemm/sm90/gemm_sm90.cuh"

inline namespace TGI_CUDA_ENTRY
{

/** The tiles of a dense product, and this block's part of one. */
struct gemm_part_tiles : gemm_dense_tiles {
  __device__ __forceinline__ int count(const gemm_ends &) const
  {
    return (int)gridDim.x;
  }

  __device__ __forceinline__ bool find(const gemm_ends &ends, int block, gemm_place *p) const
  {
    const int parts = (int)cluster_blocks(), part = (int)cluster_rank();
    gemm_dense_tiles::find(ends, block / parts, p);
    const int from = p->steps * part / parts;
    p->first_step = from * kGemmTileK;
    p->steps = p->steps * (part + 1) / parts - from;
    return true;
  }
};

/** Where a thread's sums from number `first` on lie: four after the other, and those of the next
 * thread beside them. */
__device__ __forceinline__ uint32_t gemm_part_at(const gemm_shared &s, int first)
{
  const int thread = (int)threadIdx.x - kWarpgroup;
  return s.a + (uint32_t)(first / 4 * kGemmConsumers * kWarpgroup + thread) * 16;
}

/** Leaves this thread's sums. `both`: both warpgroups have been multiplying from the stages. */
template <typename Form>
__device__ __forceinline__ void gemm_leave_part(const float (&d)[Form::kN / 2],
                                                const gemm_shared &s, bool both)
{
  static_assert(Form::kN / 2 * 4 * kGemmConsumers * kWarpgroup <=
                    Form::kStages * (Form::kBytesA + Form::kBytesB),
                "sums that fit in place of the stages");
  if (both) {
    sync_some(3, kGemmConsumers * kWarpgroup); /* all stages have been read */
  }
#pragma unroll
  for (int i = 0; i < Form::kN / 2; i += 4) {
    store_shared(gemm_part_at(s, i), __float_as_uint(d[i]), __float_as_uint(d[i + 1]),
                 __float_as_uint(d[i + 2]), __float_as_uint(d[i + 3]));
  }
}

/** Whether this block of the cluster stores block `block` of kBlocks of a consumer's rows. */
template <int kBlocks> __device__ __forceinline__ bool gemm_owns(int consumer, int block)
{
  const int parts = (int)cluster_blocks();
  const int number = consumer * kBlocks + block;
  return (unsigned)(number * parts / (kGemmConsumers * kBlocks)) == cluster_rank();
}

/** v = this thread's kValues sums from number `first` on, of all parts in their order. */
template <int kValues>
__device__ __forceinline__ void gemm_add_parts(float *v, const gemm_shared &s, int first)
{
  const int parts = (int)cluster_blocks();
#pragma unroll
  for (int i = 0; i < kValues; i++) {
    v[i] = 0;
  }
  for (int part = 0; part < parts; part++) {
    const uint32_t from = address_in(gemm_part_at(s, first), (unsigned)part);
    float4 more[kValues / 4];
#pragma unroll
    for (int i = 0; i < kValues / 4; i++) {
      more[i] = load_in_cluster(from + i * kGemmConsumers * kWarpgroup * 16);
    }
#pragma unroll
    for (int i = 0; i < kValues / 4; i++) {
      v[4 * i] += more[i].x;
      v[4 * i + 1] += more[i].y;
      v[4 * i + 2] += more[i].z;
      v[4 * i + 3] += more[i].w;
    }
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
