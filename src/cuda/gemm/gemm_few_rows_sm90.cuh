/**
 * y = x W^T for 1 to 64 rows of x, of 16 bits or e4m3, on Hopper: one reading of W at memory's
 * pace.
 *
 * Method  y^T = W x^T on tensor cores (wgmma): 128 rows of W are the rows of a tile and x's
 *         rows its 8 to 64 columns. A cluster of up to eight blocks shares such a tile, each with
 *         a part of k of its own, so that few rows of W occupy the device too. A warp loads steps
 *         of 64 (e4m3: 128) of W and x by TMA into a ring; two warpgroups multiply. In the end each
 * block adds up its share of the tile from all of them, in the order of k, through the cluster's
 *         shared memory.
 * Sums    How k is split depends on W's shape alone, and a column of a tile on no other column: a
 *         row of y has the same bits whatever the number of rows. A step's sums of e4m3, of which
 *         tensor cores keep some 14 bits, are added up outside of these.
 * Bound   Memory: W once; x from the second-level cache, once for each 128 rows of W.
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
/** Elements of a step. */
template <typename T> constexpr int kFewElements = 2 * kFewStep / (int)sizeof(T);
constexpr int kFewPitch = kFewOutputs + 4; /* of sums in shared memory: no two lanes in a bank */

/** y[r, o] = finish(sum + bias[o]). */
struct few_rows_job {
  const void *bias; /* NULL: none */
  tg_dtype bias_dtype, y_dtype;
  void *y;
  int64_t y_step;
  int rows, outputs, steps, parts; /* parts: blocks of a cluster */
  bool plain; /* y is the rounded sums, in the operands' dtype, four of which are a vector */
};

struct few_rows_shared {
  uint32_t tiles; /* stages of W's tile and x's */
  mbarrier *full, *empty;
  float *sums; /* [kTokens][kFewPitch], in the place of the stages */
};

template <int kTokens> constexpr int kFewStage = kFewWeights + kTokens * 2 * kFewStep;

template <int kTokens>
__device__ __forceinline__ few_rows_shared few_rows_open(char *raw, int stages,
                                                         const CUtensorMap *weight,
                                                         const CUtensorMap *x)
{
  few_rows_shared s;
  const uint32_t start = shared_address(raw);
  char *at = raw + ((1024 - start % 1024) % 1024);
  s.tiles = shared_address(at);
  s.sums = reinterpret_cast<float *>(at);
  s.full = reinterpret_cast<mbarrier *>(at + stages * kFewStage<kTokens>);
  s.empty = s.full + stages;
  if (threadIdx.x == 2 * kWarpgroup) { /* which loads */
    fetch_map(weight);
    fetch_map(x);
    for (int i = 0; i < stages; i++) {
      init_barrier(s.full + i, 1);
      init_barrier(s.empty + i, 2);
    }
    publish_barriers();
  }
  __syncthreads();
  return s;
}

template <typename T, int kTokens>
__device__ __forceinline__ void few_rows_load(const few_rows_shared &s, const CUtensorMap *weight,
                                              const CUtensorMap *x, int output, int first, int end,
                                              int stages)
{
  for (int i = 0; i < end - first; i++) {
    const int stage = i % stages, k = (first + i) * kFewElements<T>;
    const uint32_t to = s.tiles + stage * kFewStage<kTokens>;
    wait_for(s.empty + stage, (i / stages & 1) ^ 1);
    arrive_expecting(s.full + stage, kFewStage<kTokens>);
    load_page(to, weight, k, output, 0, 0, s.full + stage);
    load_page(to + kFewWeights, x, k, 0, 0, 0, s.full + stage);
  }
}

/** d = the step's products, or more than these if `add`. */
template <typename T, int kTokens>
__device__ __forceinline__ void few_rows_step(float (&d)[kTokens / 2], const few_rows_shared &s,
                                              int stage, int half, bool add)
{
  const uint32_t at = s.tiles + stage * kFewStage<kTokens>;
  const uint64_t a = page_operand(at + half * (kFewWeights / 2));
  const uint64_t b = page_operand(at + kFewWeights);
  wgmma_fence();
#pragma unroll
  for (int j = 0; j < kFewStep / 16; j++) {
    multiply<T, kTokens>(d, operand_at(a, 32 * j), operand_at(b, 32 * j), add || j > 0);
  }
  wgmma_commit();
}

/** d = this warpgroup's 64 rows of W times x, over the block's part of k; of e4m3: sums of steps.
 */
template <typename T, int kTokens>
__device__ __forceinline__ void few_rows_add_up(float (&d)[kTokens / 2], const few_rows_shared &s,
                                                int first, int end, int stages)
{
  float part[kTokens / 2];
#pragma unroll
  for (int j = 0; j < kTokens / 2; j++) {
    d[j] = 0;
  }
  for (int i = 0; i < end - first; i++) {
    const int stage = i % stages;
    wait_for(s.full + stage, i / stages & 1);
    few_rows_step<T, kTokens>(part, s, stage, (int)threadIdx.x / kWarpgroup, false);
    wgmma_wait<0>();
    settle(part);
    if (threadIdx.x % kWarpgroup == 0) {
      arrive(s.empty + stage);
    }
#pragma unroll
    for (int j = 0; j < kTokens / 2; j++) {
      d[j] += part[j];
    }
  }
}

/** The same of 16 bits: one chain. */
template <typename T, int kTokens>
__device__ __forceinline__ void few_rows_multiply(float (&d)[kTokens / 2], const few_rows_shared &s,
                                                  int first, int end, int stages)
{
  const int half = (int)threadIdx.x / kWarpgroup;
  const bool leads = threadIdx.x % kWarpgroup == 0;
  for (int i = 0; i < end - first; i++) {
    const int stage = i % stages;
    wait_for(s.full + stage, i / stages & 1);
    few_rows_step<T, kTokens>(d, s, stage, half, i > 0);
    wgmma_wait<1>();
    if (leads && i > 0) {
      arrive(s.empty + (i - 1) % stages);
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

/** The sums of all parts, added up in their order; their loads are under way at once. */
__device__ __forceinline__ float4 few_rows_total(const float *mine, int parts)
{
  if (parts == 1) {
    return *reinterpret_cast<const float4 *>(mine);
  }
  float4 v[TGI_GEMM_FEW_PARTS];
#pragma unroll
  for (int p = 0; p < TGI_GEMM_FEW_PARTS; p++) {
    if (p < parts) {
      v[p] = load_in_cluster(address_in(mine, (unsigned)p));
    }
  }
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int p = 0; p < TGI_GEMM_FEW_PARTS; p++) {
    if (p < parts) {
      sum.x += v[p].x;
      sum.y += v[p].y;
      sum.z += v[p].z;
      sum.w += v[p].w;
    }
  }
  return sum;
}

/** Four columns of y: rounded and stored at once where nothing else is to be done; else one after
 * the other, from shared memory, so that there is one copy of what is done. */
template <typename T, typename Finish>
__device__ __forceinline__ void few_rows_store(const few_rows_job &job, const Finish &finish,
                                               float4 sum, float *mine, int row, int column)
{
  if constexpr (sizeof(T) == 2) {
    if (job.plain) {
      if (column < job.outputs) {
        *reinterpret_cast<uint2 *>(static_cast<T *>(job.y) + row * job.y_step + column) =
            make_uint2(round_pair<T>(sum.x, sum.y), round_pair<T>(sum.z, sum.w));
      }
      return;
    }
  }
  *reinterpret_cast<float4 *>(mine) = sum; /* no other block reads this share here */
#pragma unroll 1
  for (int i = 0; i < 4 && column + i < job.outputs; i++) {
    float v = mine[i];
    if (job.bias) {
      v += load_any(job.bias, job.bias_dtype, column + i);
    }
    store_any(job.y, job.y_dtype, row * job.y_step + column + i, finish(v, 0, row, column + i));
  }
}

/** This block's share of the tile, from the sums of all parts. */
template <typename T, typename Finish>
__device__ __forceinline__ void few_rows_finish(const few_rows_shared &s, const few_rows_job &job,
                                                int output, int part, const Finish &finish)
{
  constexpr int kFours = kFewOutputs / 4;
  const int begin = kFours * part / job.parts, share = kFours * (part + 1) / job.parts - begin;
  const int bits = share > 1 ? 32 - __clz(share - 1) : 0; /* of a power of two not below it */
  for (int i = (int)threadIdx.x; i < job.rows << bits; i += kFewThreads) {
    const int row = i >> bits, four = i & ((1 << bits) - 1);
    if (four < share) {
      const int within = 4 * (begin + four);
      float *mine = s.sums + row * kFewPitch + within;
      few_rows_store<T>(job, finish, few_rows_total(mine, job.parts), mine, row, output + within);
    }
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
  const few_rows_shared s = few_rows_open<kTokens>(few_rows_memory, kStages, &weight, &x);
  const int part = (int)blockIdx.x % job.parts, output = (int)blockIdx.x / job.parts * kFewOutputs;
  const int first = job.steps * part / job.parts, end = job.steps * (part + 1) / job.parts;
  if (threadIdx.x < 2 * kWarpgroup) {
    float d[kTokens / 2];
    if constexpr (sizeof(T) == 1) {
      few_rows_add_up<T, kTokens>(d, s, first, end, kStages);
    } else {
      few_rows_multiply<T, kTokens>(d, s, first, end, kStages);
    }
    few_rows_leave<kTokens>(d, s);
  } else if (threadIdx.x == 2 * kWarpgroup) {
    few_rows_load<T, kTokens>(s, &weight, &x, output, first, end, kStages);
  }
  cluster_barrier((unsigned)job.parts);
  few_rows_finish<T>(s, job, output, part, finish);
  if (job.parts > 1) {
    cluster_barrier((unsigned)job.parts); /* others still read this block's sums */
  }
}

} // namespace

template <typename T, int kTokens, int kStages, typename Finish>
tg_status few_rows_launch_sm90(const tg_context *ctx, const tg_tensor *weight, const tg_tensor *x,
                               const few_rows_job &job, const Finish &finish)
{
  const auto kernel = gemm_few_rows_kernel<T, kTokens, kStages, Finish>;
  const size_t shared = 1024 + kStages * (kFewStage<kTokens> + 2 * sizeof(mbarrier));
  CUtensorMap maps[2];
  const page_map both[2] = {{&maps[0], weight, kFewOutputs}, {&maps[1], x, kTokens}};
  const tg_status status = make_page_maps(ctx, both);
  if (status != TG_OK) {
    return status;
  }
  cluster_launch l;
  const cudaError_t e =
      prepare_clusters(ctx, (const void *)kernel, job.parts, kFewThreads, shared, &l);
  return launch_clusters(ctx, e, kernel, &l, (int)divide_up(job.outputs, kFewOutputs), maps[0],
                         maps[1], job, finish);
}

/** Runs a plan of few rows; weight and x as pages_of names them. */
template <typename T, typename Finish>
tg_status few_rows_sm90(const tg_context *ctx, const tg_tensor *weight, const tg_tensor *x,
                        const few_rows_job &job, const Finish &finish)
{
  return job.rows <= 8    ? few_rows_launch_sm90<T, 8, 6>(ctx, weight, x, job, finish)
         : job.rows <= 16 ? few_rows_launch_sm90<T, 16, 6>(ctx, weight, x, job, finish)
         : job.rows <= 32 ? few_rows_launch_sm90<T, 32, 5>(ctx, weight, x, job, finish)
                          : few_rows_launch_sm90<T, 64, 4>(ctx, weight, x, job, finish);
}

} // namespace TGI_CUDA_ENTRY

#endif
