/**
 * y = x W^T for 1 to 64 rows of x, of 16 bits or e4m3, on Hopper: one reading of W at memory's
 * pace.
 *
 * Method  y^T = W x^T on tensor cores (wgmma): rows of W are the rows of a tile and x's rows its 8
 *         to 64 columns. A warp loads steps of 64 (e4m3: 128) of W and x by TMA into rings; two
 *         warpgroups multiply. k is in one to eight parts, so that few rows of W occupy the device
 *         too:
 *           whole   128 rows of W for a block and a part for each block of a cluster; both
 *                   warpgroups read one ring
 *           halves  64 rows of W for a block and a part for each warpgroup, which has a ring of its
 *                   own: half as many blocks in a cluster, and of two parts none
 *         In the end each block adds up its share of the tile from all parts, in their order,
 *         through the cluster's shared memory.
 * Sums    How k is split depends on W's shape alone, and a column of a tile on no other column: a
 *         row of y has the same bits whatever the number of rows. A step's sums of e4m3, of which
 *         tensor cores keep some 14 bits, are added up outside of these.
 * Bound   Memory: W once; x from the second-level cache, once for each tile.
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
/** Elements of a step. */
template <typename T> constexpr int kFewElements = 2 * kFewStep / (int)sizeof(T);

/** A tile's extents, and the stages of a ring. */
template <int kRowsOfX, bool kInHalves> struct few_rows_form {
  static constexpr int kTokens = kRowsOfX;
  static constexpr bool kHalves = kInHalves;
  static constexpr int kOutputs = kHalves ? TGI_GEMM_FEW_HALF : kFewOutputs;
  static constexpr int kRings = kHalves ? 2 : 1; /* and parts of a block */
  static constexpr int kWeights = kOutputs * 2 * kFewStep,
                       kStage = kWeights + kTokens * 2 * kFewStep;
  static constexpr int kStages = kHalves ? (kTokens == 16 || kTokens == 32 ? 8 : 6)
                                         : (kTokens <= 16   ? 6
                                            : kTokens == 32 ? 5
                                                            : 4);
  static constexpr int kPitch = kOutputs + 4; /* of sums in shared memory: no two lanes in a bank */
  static constexpr int kSums = kTokens * kPitch; /* of a part */
  static constexpr int kBytes = 1024 + kRings * kStages * (kStage + 2 * (int)sizeof(mbarrier));
  static_assert(kRings * kSums * (int)sizeof(float) <= kRings * kStages * kStage, "room for sums");
};

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
  uint32_t tiles;         /* stages of W's tile and x's, one ring after the other */
  mbarrier *full, *empty; /* likewise */
  float *sums;            /* [kRings][kTokens][kPitch], in the place of the stages */
};

/** Steps of k of a part. */
struct few_rows_part {
  int first, count;

  __device__ __forceinline__ few_rows_part(const few_rows_job &job, int part)
      : first(job.steps * part / job.parts), count(job.steps * (part + 1) / job.parts - first)
  {
  }
};

template <typename Form>
__device__ __forceinline__ few_rows_shared few_rows_open(char *raw, const CUtensorMap *weight,
                                                         const CUtensorMap *x)
{
  constexpr int kAll = Form::kRings * Form::kStages;
  few_rows_shared s;
  const uint32_t start = shared_address(raw);
  char *at = raw + ((1024 - start % 1024) % 1024);
  s.tiles = shared_address(at);
  s.sums = reinterpret_cast<float *>(at);
  s.full = reinterpret_cast<mbarrier *>(at + kAll * Form::kStage);
  s.empty = s.full + kAll;
  if (threadIdx.x == 2 * kWarpgroup) { /* which loads */
    fetch_map(weight);
    fetch_map(x);
    for (int i = 0; i < kAll; i++) {
      init_barrier(s.full + i, 1);
      init_barrier(s.empty + i, 2 / Form::kRings);
    }
    publish_barriers();
  }
  if (threadIdx.x < 2 * kWarpgroup) {
    sync_some(2, kFewThreads);
  } else { /* who loads waits for nobody */
    __syncwarp();
    arrive_some(2, kFewThreads);
  }
  return s;
}

template <typename T, typename Form>
__device__ __forceinline__ void few_rows_load(const few_rows_shared &s, const few_rows_job &job,
                                              const CUtensorMap *weight, const CUtensorMap *x,
                                              int output, int block)
{
  const few_rows_part low(job, Form::kRings * block);
  const few_rows_part high(job, Form::kRings * block + Form::kRings - 1);
  const uint64_t once = read_once();
  for (int i = 0; i < low.count || i < high.count; i++) {
    const int stage = i % Form::kStages;
    const unsigned parity = (i / Form::kStages & 1) ^ 1;
#pragma unroll
    for (int ring = 0; ring < Form::kRings; ring++) {
      const few_rows_part &part = ring == 0 ? low : high;
      if (i < part.count) {
        const int at = ring * Form::kStages + stage, k = (part.first + i) * kFewElements<T>;
        const uint32_t to = s.tiles + at * Form::kStage;
        wait_for(s.empty + at, parity);
        arrive_expecting(s.full + at, Form::kStage);
        load_page(to, weight, k, output, 0, 0, s.full + at, once);
        load_page(to + Form::kWeights, x, k, 0, 0, 0, s.full + at);
      }
    }
  }
}

/** d = the step's products of the warpgroup's 64 rows of W, or more than these if `add`. */
template <typename T, typename Form>
__device__ __forceinline__ void few_rows_step(float (&d)[Form::kTokens / 2],
                                              const few_rows_shared &s, int stage, bool add)
{
  const int half = Form::kHalves ? 0 : (int)threadIdx.x / kWarpgroup;
  const uint32_t at = s.tiles + stage * Form::kStage;
  const uint64_t a = page_operand(at + half * (Form::kWeights / 2));
  const uint64_t b = page_operand(at + Form::kWeights);
  wgmma_fence();
#pragma unroll
  for (int j = 0; j < kFewStep / 16; j++) {
    multiply<T, Form::kTokens>(d, operand_at(a, 32 * j), operand_at(b, 32 * j), add || j > 0);
  }
  wgmma_commit();
}

/** d = this warpgroup's 64 rows of W times x, over its part of k; of e4m3: sums of steps. `ring`:
 * its first stage. */
template <typename T, typename Form>
__device__ __forceinline__ void few_rows_add_up(float (&d)[Form::kTokens / 2],
                                                const few_rows_shared &s, int ring, int count)
{
  float part[Form::kTokens / 2];
#pragma unroll
  for (int j = 0; j < Form::kTokens / 2; j++) {
    d[j] = 0;
  }
  for (int i = 0; i < count; i++) {
    const int stage = ring + i % Form::kStages;
    wait_for(s.full + stage, i / Form::kStages & 1);
    few_rows_step<T, Form>(part, s, stage, false);
    wgmma_wait<0>();
    settle(part);
    if (threadIdx.x % kWarpgroup == 0) {
      arrive(s.empty + stage);
    }
#pragma unroll
    for (int j = 0; j < Form::kTokens / 2; j++) {
      d[j] += part[j];
    }
  }
}

/** The same of 16 bits: one chain. Many tokens have few stages, which become free at once; with few
 * the next step's products begin first. */
template <typename T, typename Form>
__device__ __forceinline__ void few_rows_multiply(float (&d)[Form::kTokens / 2],
                                                  const few_rows_shared &s, int ring, int count)
{
  constexpr bool kAtOnce = Form::kTokens > 16;
  const bool leads = threadIdx.x % kWarpgroup == 0;
  for (int i = 0; i < count; i++) {
    const int stage = ring + i % Form::kStages;
    wait_for(s.full + stage, i / Form::kStages & 1);
    few_rows_step<T, Form>(d, s, stage, i > 0);
    wgmma_wait<kAtOnce ? 0 : 1>();
    if (leads && kAtOnce) {
      arrive(s.empty + stage);
    } else if (leads && i > 0) {
      arrive(s.empty + ring + (i - 1) % Form::kStages);
    }
  }
  wgmma_wait<0>();
  settle(d);
}

template <typename Form>
__device__ __forceinline__ void few_rows_leave(const float (&d)[Form::kTokens / 2],
                                               const few_rows_shared &s)
{
  constexpr int kPitch = Form::kPitch;
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  float *to = s.sums + 2 * (lane % 4) * kPitch + lane / 4 +
              (Form::kHalves ? warp / 4 * Form::kSums + 16 * (warp % 4) : 16 * warp);
  sync_some(1, 2 * kWarpgroup); /* all stages have been read */
#pragma unroll
  for (int j = 0; j < Form::kTokens / 8; j++) {
    float *at = to + 8 * j * kPitch;
    at[0] = d[4 * j];
    at[kPitch] = d[4 * j + 1];
    at[8] = d[4 * j + 2];
    at[kPitch + 8] = d[4 * j + 3];
  }
}

/** The sums of all parts, added up in their order; their loads are under way at once. */
template <typename Form>
__device__ __forceinline__ float4 few_rows_total(const float *mine, int parts)
{
  float4 v[TGI_GEMM_FEW_PARTS];
#pragma unroll
  for (int p = 0; p < TGI_GEMM_FEW_PARTS; p++) {
    const float *from = mine + p % Form::kRings * Form::kSums;
    if (p < Form::kRings && parts <= Form::kRings) {
      v[p] = *reinterpret_cast<const float4 *>(from);
    } else if (p < parts) {
      v[p] = load_in_cluster(address_in(from, (unsigned)(p / Form::kRings)));
    }
  }
  float4 sum = v[0];
#pragma unroll
  for (int p = 1; p < TGI_GEMM_FEW_PARTS; p++) {
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

/** This block's share of the tile, from the sums of all parts. Of a cluster's share a thread has at
 * most kAtOnce fours: when all are read, the others may go, and what is stored does not hold them.
 */
template <typename T, typename Form, typename Finish>
__device__ __forceinline__ void few_rows_finish(const few_rows_shared &s, const few_rows_job &job,
                                                int output, int block, int blocks,
                                                const Finish &finish)
{
  constexpr int kFours = Form::kOutputs / 4;
  constexpr int kAtOnce = (Form::kTokens * kFours / 2 + kFewThreads - 1) / kFewThreads;
  const int begin = kFours * block / blocks, share = kFours * (block + 1) / blocks - begin;
  const int bits = share > 1 ? 32 - __clz(share - 1) : 0; /* of a power of two not below it */
  const int count = job.rows << bits;
  for (int from = (int)threadIdx.x; from < count || blocks > 1; from += kAtOnce * kFewThreads) {
    float4 sum[kAtOnce];
    float *mine[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; u++) {
      const int i = from + u * kFewThreads, four = i & ((1 << bits) - 1);
      mine[u] = NULL;
      if (i < count && four < share) {
        mine[u] = s.sums + (i >> bits) * Form::kPitch + 4 * (begin + four);
        sum[u] = few_rows_total<Form>(mine[u], job.parts);
      }
    }
    if (blocks > 1) {
      __syncwarp();
      leave_cluster();
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; u++) {
      const int i = from + u * kFewThreads;
      if (mine[u]) {
        few_rows_store<T>(job, finish, sum[u], mine[u], i >> bits,
                          output + 4 * (begin + (i & ((1 << bits) - 1))));
      }
    }
    if (blocks > 1) {
      __syncwarp();
      wait_in_cluster();
      break;
    }
  }
}

namespace
{

template <typename T, typename Form, typename Finish>
__global__ void __launch_bounds__(kFewThreads, 2)
    gemm_few_rows_kernel(const __grid_constant__ CUtensorMap weight,
                         const __grid_constant__ CUtensorMap x,
                         const __grid_constant__ few_rows_job job,
                         const __grid_constant__ Finish finish)
{
  extern __shared__ char few_rows_memory[];
  const few_rows_shared s = few_rows_open<Form>(few_rows_memory, &weight, &x);
  const int blocks = job.parts / Form::kRings, block = (int)blockIdx.x % blocks;
  const int output = (int)blockIdx.x / blocks * Form::kOutputs;
  if (threadIdx.x < 2 * kWarpgroup) {
    const int ring = Form::kHalves ? (int)threadIdx.x / kWarpgroup : 0;
    const int count = few_rows_part(job, Form::kRings * block + ring).count;
    float d[Form::kTokens / 2];
    if constexpr (sizeof(T) == 1) {
      few_rows_add_up<T, Form>(d, s, ring * Form::kStages, count);
    } else {
      few_rows_multiply<T, Form>(d, s, ring * Form::kStages, count);
    }
    few_rows_leave<Form>(d, s);
  } else if (threadIdx.x == 2 * kWarpgroup) {
    few_rows_load<T, Form>(s, job, &weight, &x, output, block);
  }
  cluster_barrier((unsigned)blocks);
  few_rows_finish<T, Form>(s, job, output, block, blocks, finish);
}

} // namespace

/** A kernel, and what its launch has to know of its form. */
template <typename Finish> struct few_rows_choice {
  void (*kernel)(CUtensorMap, CUtensorMap, few_rows_job, Finish);
  int tokens, outputs, rings, bytes;
};

template <typename T, typename Form, typename Finish> few_rows_choice<Finish> few_rows_choice_of()
{
  return {gemm_few_rows_kernel<T, Form, Finish>, Form::kTokens, Form::kOutputs, Form::kRings,
          Form::kBytes};
}

template <typename T, bool kHalves, typename Finish>
few_rows_choice<Finish> few_rows_choose(int rows)
{
  return rows <= 8    ? few_rows_choice_of<T, few_rows_form<8, kHalves>, Finish>()
         : rows <= 16 ? few_rows_choice_of<T, few_rows_form<16, kHalves>, Finish>()
         : rows <= 32 ? few_rows_choice_of<T, few_rows_form<32, kHalves>, Finish>()
                      : few_rows_choice_of<T, few_rows_form<64, kHalves>, Finish>();
}

/** Runs a plan of few rows; weight and x as pages_of names them. */
template <typename T, typename Finish>
tg_status few_rows_sm90(const tg_context *ctx, const tgi_gemm_plan &plan, const tg_tensor *weight,
                        const tg_tensor *x, const few_rows_job &job, const Finish &finish)
{
  const few_rows_choice<Finish> choice = plan.tile_n == TGI_GEMM_FEW_HALF
                                             ? few_rows_choose<T, true, Finish>(job.rows)
                                             : few_rows_choose<T, false, Finish>(job.rows);
  const bool ahead = choice.tokens > 16; /* of W's rows 256 bytes are fetched at once */
  CUtensorMap maps[2];
  const page_map both[2] = {{&maps[0], weight, choice.outputs, kPageRow, ahead},
                            {&maps[1], x, choice.tokens}};
  const tg_status status = make_page_maps(ctx, both);
  if (status != TG_OK) {
    return status;
  }
  cluster_launch l;
  const cudaError_t e = prepare_clusters(ctx, (const void *)choice.kernel, job.parts / choice.rings,
                                         kFewThreads, (size_t)choice.bytes, &l);
  return launch_clusters(ctx, e, choice.kernel, &l, (int)divide_up(job.outputs, choice.outputs),
                         maps[0], maps[1], job, finish);
}

} // namespace TGI_CUDA_ENTRY

#endif
