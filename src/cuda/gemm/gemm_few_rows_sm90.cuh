/**
 * y = x W^T for 1 to 64 rows of 16-bit x on Hopper: one reading of W at memory's pace.
 *
 * Method  y^T = W x^T on tensor cores (wgmma): 128 rows of W are the rows of a tile and x's
 *         rows its 8 to 64 columns. Up to eight blocks of a cluster share such a tile, each with a
 *         part of k of its own, so that few rows of W occupy the device too. A warp loads steps of
 *         64 of W and x by TMA into a ring; two warpgroups multiply. In the end each block adds up
 *         its share of the tile from all of them, in the order of k, through the cluster's shared
 *         memory. From 17 rows on a cluster has several tiles, where it has room: peers, blocks
 *         with the same part of k, load a slice of x each, for all of them (multicast).
 * Sums    How k is split depends on W's shape alone, and a column of a tile on no other column: a
 *         row of y has the same bits whatever the number of rows.
 * Bound   Memory: W once; x from the second-level cache, once for the 128 rows of W of each peer.
 */
#ifndef TGI_CUDA_GEMM_FEW_ROWS_SM90_CUH
#define TGI_CUDA_GEMM_FEW_ROWS_SM90_CUH

#include "cuda/gemm/gemm_loader.cuh"
#include "cuda/tma.cuh"
#include "cuda/warpgroup.cuh"
#include "cuda/wgmma.cuh"

extern "C" {
#include "cuda/gemm/gemm_problem.h"
}

inline namespace TGI_CUDA_ENTRY
{

constexpr int kFewThreads = 288; /* two warpgroups and a warp that loads */
constexpr int kFewOutputs = TGI_GEMM_FEW_OUTPUTS, kFewStep = TGI_GEMM_FEW_STEP;
constexpr int kFewWeights = kFewOutputs * 2 * kFewStep; /* bytes of a stage */
constexpr int kFewPitch = kFewOutputs + 4; /* of sums in shared memory: no two lanes in a bank */

/** y[r, o] = finish(sum + bias[o]). */
struct few_rows_job {
  const void *bias; /* NULL: none */
  tg_dtype bias_dtype, y_dtype;
  void *y;
  int64_t y_step;
  int rows, outputs, steps;
  int parts, peers; /* of a cluster: block p + parts * q has part p of k for the tile of peer q */
  bool plain;       /* nothing but a bias follows, and fours of y and bias begin at their size */

  __device__ __forceinline__ unsigned blocks() const
  {
    return (unsigned)(parts * peers);
  }
};

/** Where a block stands in its cluster. */
struct few_rows_place {
  int part, peer, output; /* output: first row of W */

  __device__ __forceinline__ explicit few_rows_place(const few_rows_job &job)
  {
    const int cluster = (int)(blockIdx.x / job.blocks()), rank = (int)(blockIdx.x % job.blocks());
    part = rank % job.parts;
    peer = rank / job.parts;
    output = (cluster * job.peers + peer) * kFewOutputs;
  }

  __device__ __forceinline__ unsigned rank_of(const few_rows_job &job, int other_part,
                                              int other_peer) const
  {
    return (unsigned)(other_part + job.parts * other_peer);
  }
};

struct few_rows_shared {
  uint32_t tiles; /* stages of W's tile and x's */
  mbarrier *full, *empty;
  float *sums; /* [kTokens][kFewPitch], in the place of the stages */
};

template <int kTokens> constexpr int kFewStage = kFewWeights + kTokens * 2 * kFewStep;

template <int kTokens>
__device__ __forceinline__ few_rows_shared few_rows_open(char *raw, int stages,
                                                         const few_rows_job &job)
{
  few_rows_shared s;
  const uint32_t start = shared_address(raw);
  char *at = raw + ((1024 - start % 1024) % 1024);
  s.tiles = shared_address(at);
  s.sums = reinterpret_cast<float *>(at);
  s.full = reinterpret_cast<mbarrier *>(at + stages * kFewStage<kTokens>);
  s.empty = s.full + stages;
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; i++) {
      init_barrier(s.full + i, 1);
      init_barrier(s.empty + i, 2 * (unsigned)job.peers);
    }
    publish_barriers();
  }
  cluster_barrier(job.peers > 1 ? job.blocks() : 1); /* peers' copies count on the barriers */
  return s;
}

template <int kTokens>
__device__ __forceinline__ void
few_rows_load(const few_rows_shared &s, const CUtensorMap *weight, const CUtensorMap *x,
              const few_rows_job &job, const few_rows_place &place, int first, int end, int stages)
{
  const int slice = kTokens / job.peers; /* rows of x that this block loads */
  const int row = place.peer * slice;
  unsigned peers = 0;
  for (int q = 0; q < job.peers; q++) {
    peers |= 1U << place.rank_of(job, place.part, q);
  }
  for (int i = 0; i < end - first; i++) {
    const int stage = i % stages, k = (first + i) * kFewStep;
    const uint32_t to = s.tiles + stage * kFewStage<kTokens>;
    wait_for(s.empty + stage, (i / stages & 1) ^ 1);
    arrive_expecting(s.full + stage, kFewStage<kTokens>);
    load_page(to, weight, k, place.output, 0, 0, s.full + stage);
    if (job.peers == 1) {
      load_page(to + kFewWeights, x, k, 0, 0, 0, s.full + stage);
    } else {
      load_page_in(to + kFewWeights + row * kPageRow, x, k, row, s.full + stage, peers);
    }
  }
}

/** d = this warpgroup's 64 rows of W times x, over the block's part of k. */
template <typename T, int kTokens>
__device__ __forceinline__ void
few_rows_multiply(float (&d)[kTokens / 2], const few_rows_shared &s, const few_rows_job &job,
                  const few_rows_place &place, int first, int end, int stages)
{
  const int half = (int)threadIdx.x / kWarpgroup, thread = (int)threadIdx.x % kWarpgroup;
  const unsigned rank = place.rank_of(job, place.part, thread < job.peers ? thread : 0);
  for (int i = 0; i < end - first; i++) {
    const int stage = i % stages;
    const uint32_t at = s.tiles + stage * kFewStage<kTokens>;
    wait_for(s.full + stage, i / stages & 1);
    const uint64_t a = page_operand(at + half * (kFewWeights / 2));
    const uint64_t b = page_operand(at + kFewWeights);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < kFewStep / 16; j++) {
      multiply<T, kTokens>(d, operand_at(a, 32 * j), operand_at(b, 32 * j), i > 0 || j > 0);
    }
    wgmma_commit();
    wgmma_wait<1>();
    if (i > 0 && job.peers == 1 && thread == 0) {
      arrive(s.empty + (i - 1) % stages);
    } else if (i > 0 && job.peers > 1 && thread < job.peers) {
      release_in(s.empty + (i - 1) % stages, rank);
    }
  }
  wgmma_wait<0>();
  settle(d);
}

template <int kTokens>
__device__ __forceinline__ void few_rows_leave(const float (&d)[kTokens / 2],
                                               const few_rows_shared &s)
{
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  float *to = s.sums + 2 * (lane % 4) * kFewPitch + 16 * warp + lane / 4;
  sync_some(1, 2 * kWarpgroup); /* all stages have been read */
#pragma unroll
  for (int j = 0; j < kTokens / 8; j++) {
    float *at = to + 8 * j * kFewPitch;
    at[0] = d[4 * j];
    at[kFewPitch] = d[4 * j + 1];
    at[8] = d[4 * j + 2];
    at[kFewPitch + 8] = d[4 * j + 3];
  }
}

__device__ __forceinline__ float4 load_in_cluster(const float *mine, unsigned block)
{
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address_in(mine, block)));
  return v;
}

/** Four neighbours of a tile's sums, over all parts in the order of k. */
__device__ __forceinline__ void few_rows_add_parts(float (&sum)[4], const few_rows_job &job,
                                                   const few_rows_place &place, const float *from)
{
#pragma unroll 4
  for (int p = 0; p < job.parts; p++) {
    const float4 v = load_in_cluster(from, place.rank_of(job, p, place.peer));
    sum[0] += v.x;
    sum[1] += v.y;
    sum[2] += v.z;
    sum[3] += v.w;
  }
}

/** Four neighbours of y, or of its bias, in one access. */
__device__ __forceinline__ void few_rows_store(void *y, tg_dtype dtype, int64_t at,
                                               const float (&v)[4])
{
  if (dtype == TG_F32) {
    store(static_cast<float *>(y) + at, v);
  } else if (dtype == TG_F16) {
    store(static_cast<f16 *>(y) + at, v);
  } else {
    store(static_cast<bf16 *>(y) + at, v);
  }
}

__device__ __forceinline__ void few_rows_add_bias(float (&v)[4], const void *bias, tg_dtype dtype,
                                                  int column)
{
  float b[4];
  if (dtype == TG_F32) {
    load(b, static_cast<const float *>(bias) + column);
  } else if (dtype == TG_F16) {
    load(b, static_cast<const f16 *>(bias) + column);
  } else {
    load(b, static_cast<const bf16 *>(bias) + column);
  }
#pragma unroll
  for (int c = 0; c < 4; c++) {
    v[c] += b[c];
  }
}

/** This block's share of a whole tile, in fours of columns, with nothing but a bias behind. */
__device__ __forceinline__ void few_rows_finish_fours(const few_rows_shared &s,
                                                      const few_rows_job &job,
                                                      const few_rows_place &place, int begin,
                                                      int share)
{
  for (int i = (int)threadIdx.x; i < job.rows * share; i += kFewThreads) {
    const int row = i / share, within = 4 * (begin + i % share), column = place.output + within;
    const float *from = s.sums + row * kFewPitch + within;
    float sum[4] = {};
    if (job.blocks() == 1) {
      load(sum, from);
    } else {
      few_rows_add_parts(sum, job, place, from);
    }
    if (job.bias) {
      few_rows_add_bias(sum, job.bias, job.bias_dtype, column);
    }
    few_rows_store(job.y, job.y_dtype, row * job.y_step + column, sum);
  }
}

__device__ __forceinline__ float load_in_cluster_one(const float *mine, unsigned block)
{
  float v;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(address_in(mine, block)));
  return v;
}

/** Whatever the tile, and whatever follows. */
template <typename Finish>
__device__ __forceinline__ void
few_rows_finish_each(const few_rows_shared &s, const few_rows_job &job, const few_rows_place &place,
                     int begin, int share, const Finish &finish)
{
  for (int i = (int)threadIdx.x; i < job.rows * share; i += kFewThreads) {
    const int row = i / share, within = begin + i % share, column = place.output + within;
    const float *from = s.sums + row * kFewPitch + within;
    float sum = job.blocks() == 1 ? *from : 0.0f;
    for (int p = 0; p < job.parts && job.blocks() > 1; p++) {
      sum += load_in_cluster_one(from, place.rank_of(job, p, place.peer));
    }
    if (column < job.outputs) {
      sum += job.bias ? load_any(job.bias, job.bias_dtype, column) : 0.0f;
      store_any(job.y, job.y_dtype, row * job.y_step + column, finish(sum, 0, row, column));
    }
  }
}

/** This block's share of the tile, from the sums of all parts. */
template <typename Finish>
__device__ __forceinline__ void few_rows_finish(const few_rows_shared &s, const few_rows_job &job,
                                                const few_rows_place &place, const Finish &finish)
{
  constexpr int kFours = kFewOutputs / 4;
  const int begin = kFours * place.part / job.parts;
  const int share = kFours * (place.part + 1) / job.parts - begin;
  if (job.plain && place.output + kFewOutputs <= job.outputs) {
    few_rows_finish_fours(s, job, place, begin, share);
  } else {
    few_rows_finish_each(s, job, place, 4 * begin, 4 * share, finish);
  }
}

namespace
{

template <typename T, int kTokens, int kStages, typename Finish>
__global__ void __launch_bounds__(kFewThreads, 2)
    gemm_few_rows_kernel(const __grid_constant__ CUtensorMap weight,
                         const __grid_constant__ CUtensorMap x,
                         const __grid_constant__ few_rows_job job,
                         const __grid_constant__ Finish finish)
{
  extern __shared__ char few_rows_memory[];
  const few_rows_shared s = few_rows_open<kTokens>(few_rows_memory, kStages, job);
  const few_rows_place place(job);
  const int first = job.steps * place.part / job.parts;
  const int end = job.steps * (place.part + 1) / job.parts;
  if (threadIdx.x < 2 * kWarpgroup) {
    float d[kTokens / 2];
    few_rows_multiply<T, kTokens>(d, s, job, place, first, end, kStages);
    few_rows_leave<kTokens>(d, s);
  } else if (threadIdx.x == 2 * kWarpgroup) {
    few_rows_load<kTokens>(s, &weight, &x, job, place, first, end, kStages);
  }
  cluster_barrier(job.blocks());
  few_rows_finish(s, job, place, finish);
  if (job.blocks() > 1) {
    cluster_barrier(job.blocks()); /* others still read this block's sums */
  }
}

} // namespace

template <typename T, int kTokens, int kStages, typename Finish>
tg_status few_rows_launch_sm90(const tg_context *ctx, const tg_tensor *weight, const tg_tensor *x,
                               const few_rows_job &job, const Finish &finish)
{
  const auto kernel = gemm_few_rows_kernel<T, kTokens, kStages, Finish>;
  const size_t shared = 1024 + kStages * (kFewStage<kTokens> + 2 * sizeof(mbarrier));
  const int blocks = job.parts * job.peers;
  CUtensorMap maps[2];
  const page_map both[2] = {{&maps[0], weight, kFewOutputs}, {&maps[1], x, kTokens / job.peers}};
  const tg_status status = make_page_maps(ctx, both);
  if (status != TG_OK) {
    return status;
  }
  cluster_launch l;
  const cudaError_t e =
      prepare_clusters(ctx, (const void *)kernel, blocks, kFewThreads, shared, &l);
#ifdef PROBE_PDL
  if (PROBE_PDL)
#endif
    let_clusters_overlap(&l);
  const int64_t tiles = divide_up(job.outputs, kFewOutputs);
  return launch_clusters(ctx, e, kernel, &l, (int)divide_up(tiles, job.peers), maps[0], maps[1],
                         job, finish);
}

/** Stages that leave room for a second block on a multiprocessor, or not. */
template <typename T, int kTokens, typename Finish>
tg_status few_rows_tokens_sm90(const tg_context *ctx, const tg_tensor *weight, const tg_tensor *x,
                               const tgi_gemm_plan &plan, const few_rows_job &job,
                               const Finish &finish)
{
  constexpr int kShallow = 112 * 1024 / kFewStage<kTokens>, kDeep = 2 * kShallow;
  return plan.stages > kShallow
             ? few_rows_launch_sm90<T, kTokens, kDeep>(ctx, weight, x, job, finish)
             : few_rows_launch_sm90<T, kTokens, kShallow>(ctx, weight, x, job, finish);
}

/** Runs a plan of few rows; weight and x as pages_of names them. */
template <typename T, typename Finish>
tg_status few_rows_sm90(const tg_context *ctx, const tg_tensor *weight, const tg_tensor *x,
                        const tgi_gemm_plan &plan, const few_rows_job &job, const Finish &finish)
{
  switch (plan.tile_m) {
  case 8:
    return few_rows_tokens_sm90<T, 8>(ctx, weight, x, plan, job, finish);
  case 16:
    return few_rows_tokens_sm90<T, 16>(ctx, weight, x, plan, job, finish);
  case 32:
    return few_rows_tokens_sm90<T, 32>(ctx, weight, x, plan, job, finish);
  default:
    return few_rows_tokens_sm90<T, 64>(ctx, weight, x, plan, job, finish);
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
