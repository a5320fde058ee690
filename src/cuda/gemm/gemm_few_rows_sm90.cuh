/**
 * y = x W^T for 1 to 64 rows of 16-bit x on Hopper: one reading of W at memory's pace.
 *
 * Method  y^T = W x^T on tensor cores (wgmma): 128 or 256 rows of W are the rows of a tile and x's
 *         rows its 8 to 64 columns. A cluster of up to eight blocks shares such a tile, each with a
 *         part of k of its own, so that few rows of W occupy the device too. A warp loads steps of
 * 64 of W and x by TMA into a ring; a warpgroup for each 64 rows of W multiplies. In the end each
 * block adds up its share of the tile from all of them, in the order of k, through the cluster's
 * shared memory. Sums    How k is split depends on W's shape alone, and a column of a tile on no
 * other column: a row of y has the same bits whatever the number of rows. Bound   Memory: W once; x
 * from the second-level cache, once for each tile.
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

/** Tiles of kOutputs rows of W and kTokens of x, kStages steps of them in shared memory. */
template <int kTileOutputs, int kTileTokens, int kRing> struct few_rows_tile {
  static constexpr int kOutputs = kTileOutputs, kTokens = kTileTokens, kStages = kRing;
  static constexpr int kGroups = kOutputs / 64;              /* warpgroups that multiply */
  static constexpr int kThreads = kGroups * kWarpgroup + 32; /* and a warp that loads */
  static constexpr int kBlocks = kGroups > 2 ? 1 : 2;        /* of a multiprocessor */
  static constexpr int kWeights = kOutputs * kPageRow;       /* bytes of a stage */
  static constexpr int kStage = kWeights + kTokens * kPageRow;
  static constexpr int kPitch = kOutputs + 4; /* of sums in shared memory: no two lanes in a bank */
  static constexpr size_t kShared = 1024 + kStages * (kStage + 2 * sizeof(mbarrier));
  static_assert(kTokens * kPitch * 4 <= kStages * kStage, "sums take the stages' place");
};

/** y[r, o] = finish(sum + bias[o]). */
struct few_rows_job {
  const void *bias; /* NULL: none */
  tg_dtype bias_dtype, y_dtype;
  void *y;
  int64_t y_step;
  int rows, outputs, steps, parts; /* parts: blocks of a cluster */
};

struct few_rows_shared {
  uint32_t tiles; /* stages of W's tile and x's */
  mbarrier *full, *empty;
  float *sums; /* [kTokens][kPitch], in the place of the stages */
};

template <typename Tile> __device__ __forceinline__ few_rows_shared few_rows_open(char *raw)
{
  few_rows_shared s;
  const uint32_t start = shared_address(raw);
  char *at = raw + ((1024 - start % 1024) % 1024);
  s.tiles = shared_address(at);
  s.sums = reinterpret_cast<float *>(at);
  s.full = reinterpret_cast<mbarrier *>(at + Tile::kStages * Tile::kStage);
  s.empty = s.full + Tile::kStages;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::kStages; i++) {
      init_barrier(s.full + i, 1);
      init_barrier(s.empty + i, Tile::kGroups);
    }
    publish_barriers();
  }
  __syncthreads();
  return s;
}

template <typename Tile>
__device__ __forceinline__ void few_rows_load(const few_rows_shared &s, const CUtensorMap *weight,
                                              const CUtensorMap *x, int output, int first, int end)
{
  constexpr int kStep = TGI_GEMM_FEW_STEP;
  for (int i = 0; i < end - first; i++) {
    const int stage = i % Tile::kStages, k = (first + i) * kStep;
    const uint32_t to = s.tiles + stage * Tile::kStage;
    wait_for(s.empty + stage, (i / Tile::kStages & 1) ^ 1);
    arrive_expecting(s.full + stage, Tile::kStage);
    load_page(to, weight, k, output, 0, 0, s.full + stage);
    load_page(to + Tile::kWeights, x, k, 0, 0, 0, s.full + stage);
  }
}

/** d = this warpgroup's 64 rows of W times x, over the block's part of k. */
template <typename T, typename Tile>
__device__ __forceinline__ void few_rows_multiply(float (&d)[Tile::kTokens / 2],
                                                  const few_rows_shared &s, int first, int end)
{
  const int group = (int)threadIdx.x / kWarpgroup;
  const bool leads = threadIdx.x % kWarpgroup == 0;
  for (int i = 0; i < end - first; i++) {
    const int stage = i % Tile::kStages;
    const uint32_t at = s.tiles + stage * Tile::kStage;
    wait_for(s.full + stage, i / Tile::kStages & 1);
    const uint64_t a = page_operand(at + group * 64 * kPageRow);
    const uint64_t b = page_operand(at + Tile::kWeights);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < TGI_GEMM_FEW_STEP / 16; j++) {
      multiply<T, Tile::kTokens>(d, operand_at(a, 32 * j), operand_at(b, 32 * j), i > 0 || j > 0);
    }
    wgmma_commit();
    wgmma_wait<1>();
    if (leads && i > 0) {
      arrive(s.empty + (i - 1) % Tile::kStages);
    }
  }
  wgmma_wait<0>();
  settle(d);
}

template <typename Tile>
__device__ __forceinline__ void few_rows_leave(const float (&d)[Tile::kTokens / 2],
                                               const few_rows_shared &s)
{
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  float *to = s.sums + 2 * (lane % 4) * Tile::kPitch + 16 * warp + lane / 4;
  sync_some(1, Tile::kGroups * kWarpgroup); /* all stages have been read */
#pragma unroll
  for (int j = 0; j < Tile::kTokens / 8; j++) {
    float *at = to + 8 * j * Tile::kPitch;
    at[0] = d[4 * j];
    at[Tile::kPitch] = d[4 * j + 1];
    at[8] = d[4 * j + 2];
    at[Tile::kPitch + 8] = d[4 * j + 3];
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

/** Four sums over the parts of k, in their order: all loads are under way at once. */
__device__ __forceinline__ float4 few_rows_sum(const float *mine, int parts)
{
  float4 v[TGI_GEMM_FEW_PARTS];
  if (parts == 1) {
    return *reinterpret_cast<const float4 *>(mine);
  }
#pragma unroll
  for (int p = 0; p < TGI_GEMM_FEW_PARTS; p++) {
    v[p] = p < parts ? load_in_cluster(mine, (unsigned)p) : make_float4(0, 0, 0, 0);
  }
  float4 sum = v[0];
#pragma unroll
  for (int p = 1; p < TGI_GEMM_FEW_PARTS; p++) {
    if (p < parts) {
      sum = make_float4(sum.x + v[p].x, sum.y + v[p].y, sum.z + v[p].z, sum.w + v[p].w);
    }
  }
  return sum;
}

/** This block's share of the tile. */
template <typename Tile, typename Finish>
__device__ __forceinline__ void few_rows_finish(const few_rows_shared &s, const few_rows_job &job,
                                                int output, int part, const Finish &finish)
{
  constexpr int kQuads = Tile::kOutputs / 4;
  const int begin = kQuads * part / job.parts, share = kQuads * (part + 1) / job.parts - begin;
  for (int i = (int)threadIdx.x; i < job.rows * share; i += Tile::kThreads) {
    const int row = i / share, within = 4 * (begin + i - row * share);
    const float4 sum = few_rows_sum(s.sums + row * Tile::kPitch + within, job.parts);
    const float v[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int column = output + within + j;
      if (column < job.outputs) {
        const float z = job.bias ? v[j] + load_any(job.bias, job.bias_dtype, column) : v[j];
        store_any(job.y, job.y_dtype, row * job.y_step + column, finish(z, 0, row, column));
      }
    }
  }
}

namespace
{

template <typename T, typename Tile, typename Finish>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocks)
    gemm_few_rows_kernel(const __grid_constant__ CUtensorMap weight,
                         const __grid_constant__ CUtensorMap x,
                         const __grid_constant__ few_rows_job job,
                         const __grid_constant__ Finish finish)
{
  extern __shared__ char few_rows_memory[];
  const bool loads = threadIdx.x == Tile::kGroups * kWarpgroup;
  if (loads) {
    fetch_map(&weight);
    fetch_map(&x);
  }
  const few_rows_shared s = few_rows_open<Tile>(few_rows_memory);
  const int part = (int)blockIdx.x % job.parts;
  const int output = (int)blockIdx.x / job.parts * Tile::kOutputs;
  const int first = job.steps * part / job.parts, end = job.steps * (part + 1) / job.parts;
  if (threadIdx.x < Tile::kGroups * kWarpgroup) {
    float d[Tile::kTokens / 2];
    few_rows_multiply<T, Tile>(d, s, first, end);
    few_rows_leave<Tile>(d, s);
  } else if (loads) {
    few_rows_load<Tile>(s, &weight, &x, output, first, end);
  }
  cluster_barrier((unsigned)job.parts);
  few_rows_finish<Tile>(s, job, output, part, finish);
  if (job.parts > 1) {
    cluster_barrier((unsigned)job.parts); /* others still read this block's sums */
  }
}

} // namespace

template <typename T, typename Tile, typename Finish>
tg_status few_rows_launch(const tg_context *ctx, const tg_tensor *weight, const tg_tensor *x,
                          const few_rows_job &job, const Finish &finish)
{
  const auto kernel = gemm_few_rows_kernel<T, Tile, Finish>;
  CUtensorMap maps[2];
  const page_map both[2] = {{&maps[0], weight, Tile::kOutputs}, {&maps[1], x, Tile::kTokens}};
  const tg_status status = make_page_maps(ctx, both);
  if (status != TG_OK) {
    return status;
  }
  cluster_launch l;
  const cudaError_t e =
      prepare_clusters(ctx, (const void *)kernel, job.parts, Tile::kThreads, Tile::kShared, &l);
  return launch_clusters(ctx, e, kernel, &l, (int)divide_up(job.outputs, Tile::kOutputs), maps[0],
                         maps[1], job, finish);
}

/** Runs a plan of few rows; weight and x as pages_of names them. */
template <typename T, typename Finish>
tg_status few_rows_sm90(const tg_context *ctx, const tg_tensor *weight, const tg_tensor *x,
                        const few_rows_job &job, const Finish &finish)
{
  if (job.rows <= 8) {
    return few_rows_launch<T, few_rows_tile<128, 8, 6>>(ctx, weight, x, job, finish);
  }
  if (job.rows <= 16) {
    return few_rows_launch<T, few_rows_tile<128, 16, 6>>(ctx, weight, x, job, finish);
  }
  if (job.rows <= 32) {
    return few_rows_launch<T, few_rows_tile<256, 32, 6>>(ctx, weight, x, job, finish);
  }
  return few_rows_launch<T, few_rows_tile<256, 64, 5>>(ctx, weight, x, job, finish);
}

} // namespace TGI_CUDA_ENTRY

#endif
