/**
 * Attention forward of one query a sequence on Hopper (attention_few_plan_sm90.cuh): the kernel.
 *
 * Split-KV within a thread block cluster. A warp has units of the keys of one kv head, and up to 8
 * heads of its group. Operands are loaded from memory straight into the registers of mma.sync.
 * Which elements of a head, and which keys, a product combines is free as long as both operands
 * have the same order; it is chosen so that a thread loads 16 adjacent bytes. So keys and values
 * need neither shared memory nor a barrier, and every warp has its next 16 keys in flight. Bound by
 * the latency of one block, and by memory in large batches.
 *
 * Lane l (g = l / 4, q = l % 4) has keys g and g + 8 of 16, elements 8 q of every 32; scores of
 * head g at keys 2 q, 2 q + 1, and 8 more; values of these keys, elements 8 g of every 64. Results
 * are transposed, heads as columns: so half of a product is padding at 4 heads, not 12 of 16 rows.
 */
#ifndef TGI_OPS_ATTENTION_FEW_SM90_CUH
#define TGI_OPS_ATTENTION_FEW_SM90_CUH

#include "ops/attention/sm90/attention_few_sums_sm90.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/** 16 bytes, without a place in the first-level cache: nothing reads them again. */
__device__ __forceinline__ void load_once(uint32_t (&w)[4], const char *from)
{
  asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
               : "l"(__cvta_generic_to_global(from)));
}

/** A lane's operands of 16 keys and their values. */
template <int kCols> struct few_operands {
  uint32_t key[2][kCols / 32][4];
  uint32_t value[4][kCols / 64][4];
};

/** Past the end the last key is loaded once more; its score is masked. */
template <int kCols>
__device__ __forceinline__ void ask_keys(few_operands<kCols> &to, const char *keys, uint32_t step,
                                         int first, int last)
{
  const int g = threadIdx.x % kWarp / 4;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const char *const row =
        keys + (uint64_t)(uint32_t)min(first + g + 8 * i, last) * step + threadIdx.x % 4 * 16;
#pragma unroll
    for (int c = 0; c < kCols / 32; c++) {
      load_once(to.key[i][c], row + c * 64);
    }
  }
}

template <int kCols>
__device__ __forceinline__ void ask_values(few_operands<kCols> &to, const char *values,
                                           uint32_t step, int first, int last)
{
  const int q = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int key = first + 2 * q + i % 2 + i / 2 * 8;
    const char *const row =
        values + (uint64_t)(uint32_t)min(key, last) * step + threadIdx.x % kWarp / 4 * 16;
#pragma unroll
    for (int c = 0; c < kCols / 64; c++) {
      load_once(to.value[i][c], row + c * 128);
    }
  }
}

/** s[tile] = products of the heads with keys of the tile; rows from 8 on are padding. */
template <typename T, int kCols>
__device__ __forceinline__ void score_few(float (&s)[2][4], const few_operands<kCols> &x,
                                          uint32_t queries)
{
#pragma unroll
  for (int d = 0; d < kCols / 16; d++) {
    uint32_t a[4]; /* loaded each time: registers are for loads in flight */
    load_shared(a, queries + (uint32_t)(d * kWarp + threadIdx.x % kWarp) * 16);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      multiply_small<T>(s[i], a, x.key[i][d / 2][d % 2 * 2], x.key[i][d / 2][d % 2 * 2 + 1], d > 0);
    }
  }
}

/** o += values of 16 keys times their probabilities. */
template <typename T, int kCols>
__device__ __forceinline__ void add_few(float (&o)[kCols / 16][4], const few_operands<kCols> &x,
                                        const uint32_t (&p)[2])
{
#pragma unroll
  for (int c = 0; c < kCols / 64; c++) {
#pragma unroll
    for (int w = 0; w < 4; w++) {
      const uint32_t a[4] = {__byte_perm(x.value[0][c][w], x.value[1][c][w], 0x5410),
                             __byte_perm(x.value[0][c][w], x.value[1][c][w], 0x7632),
                             __byte_perm(x.value[2][c][w], x.value[3][c][w], 0x5410),
                             __byte_perm(x.value[2][c][w], x.value[3][c][w], 0x7632)};
      multiply_small<T>(o[4 * c + w], a, p[0], p[1], true);
    }
  }
}

/** Scores to rounded probabilities. `left`: keys that exist from the lane's first one on. `factor`:
 * what the sums so far are to be multiplied by. */
template <typename T>
__device__ __forceinline__ void weigh_few(uint32_t (&p)[2], float (&s)[2][4], few_top &state,
                                          float &factor, float exponent, int left)
{
  float x[4] = {s[0][0], s[0][1], s[1][0], s[1][1]};
  if (left < kClusterKeys) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      x[i] = i % 2 + i / 2 * 8 >= left ? -CUDART_INF_F : x[i];
    }
  }
  float most = fmaxf(fmaxf(x[0], x[1]),
                     fmaxf(x[2], x[3])); /* fmaxf drops a NaN, which then shows in the sum */
  most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
  most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
  const float top = fmaxf(state.top, most * exponent), base = top > -CUDART_INF_F ? top : 0.0f;
  factor = state.top > -CUDART_INF_F ? exp2_flushed(state.top - base) : 1.0f; /* nothing yet */
  state.top = top;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    x[i] = exp2_flushed(fmaf(x[i], exponent, -base));
  }
  state.sum = fmaf(state.sum, factor, (x[0] + x[1]) + (x[2] + x[3]));
  p[0] = round_pair<T>(x[0], x[1]);
  p[1] = round_pair<T>(x[2], x[3]);
}

/** Zeros the values of keys that do not exist (copies of the last one): 0 times infinity would be
 * NaN. */
template <int kCols> __device__ __forceinline__ void drop_values(few_operands<kCols> &x, int left)
{
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if (i % 2 + i / 2 * 8 >= left) {
#pragma unroll
      for (int c = 0; c < kCols / 64; c++) {
#pragma unroll
        for (int w = 0; w < 4; w++) {
          x.value[i][c][w] = 0;
        }
      }
    }
  }
}

/** Writes a unit's sums to its entry's line, or folds them into it if the unit is not the entry's
 * first one. A lane has elements 8 g of heads 2 q and 2 q + 1. */
template <int kCols>
__device__ __forceinline__ void leave_unit(float4 *line, float2 *ends, int group, bool first,
                                           const few_top &state, const float (&o)[kCols / 16][4])
{
  const int lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4;
  float sum = state.sum;
  sum += __shfl_xor_sync(kAllLanes, sum, 1);
  sum += __shfl_xor_sync(kAllLanes, sum, 2);
  few_top to = {state.top, sum};
  float2 by = {0, 1};
  if (!first) {
    const float2 before = ends[min(g, group - 1)];
    to = {before.x, before.y};
    by = fold_ends(to, make_float2(state.top, sum));
    __syncwarp();
  }
  if (q == 0 && g < group) {
    ends[g] = make_float2(to.top, to.sum);
  }
#pragma unroll
  for (int j = 0; j < 2; j++) {
    const float2 mine = {__shfl_sync(kAllLanes, by.x, 8 * q + 4 * j),
                         __shfl_sync(kAllLanes, by.y, 8 * q + 4 * j)};
    if (2 * q + j < group) {
#pragma unroll
      for (int i = 0; i < kCols / 32; i++) {
        float4 *const four = line + (2 * q + j) * (kCols / 4) + i / 2 * 16 + 2 * g + i % 2;
        float4 v = make_float4(o[2 * i][j], o[2 * i][2 + j], o[2 * i + 1][j], o[2 * i + 1][2 + j]);
        if (!first) {
          v = fold_four(*four, mine, v);
        }
        *four = v;
      }
    }
  }
  __syncwarp();
}

/** Multiplies the sums so far by `factor` of their heads, where some factor is not 1. */
template <int kCols>
__device__ __forceinline__ void rescale_few(float (&o)[kCols / 16][4], float factor)
{
  const int q = threadIdx.x % 4;
  if (__any_sync(kAllLanes, factor != 1)) {
    const float mine[2] = {__shfl_sync(kAllLanes, factor, 8 * q),
                           __shfl_sync(kAllLanes, factor, 8 * q + 4)};
#pragma unroll
    for (int i = 0; i < kCols / 16; i++) {
#pragma unroll
      for (int j = 0; j < 4; j++) {
        o[i][j] *= mine[j % 2];
      }
    }
  }
}

/** Sends a warp's sums to the blocks of the cluster, or waits for the block's warps, and adds. */
template <typename T, int kCols>
__device__ __forceinline__ void finish_few(const few_cluster_job &job, float4 *memory,
                                           mbarrier *all_here, const few_range &range, int first)
{
  constexpr int kFours = kCols / 4;
  const int warps = (int)blockDim.x / kWarp, warp = threadIdx.x / kWarp;
  const int lines = warps * job.run, fours = job.group * kFours;
  few_lines own, come; /* one after the other, then the factors of folds */
  own.fours = memory;
  own.ends = reinterpret_cast<float2 *>(memory + lines * fours);
  come = own;
  float2 *folds = own.ends + lines * job.group;
  if (job.shift > 0) {
    come.fours = memory + (lines * fours + (lines * job.group + 1) / 2);
    come.ends = reinterpret_cast<float2 *>(come.fours + job.entries * job.each);
    folds = come.ends + job.entries * job.group;
    wait_in_cluster(); /* all blocks' barriers are initialised */
    own.fours += warp * job.run * fours;
    own.ends += warp * job.run * job.group;
    const int mine = min(job.run, parts_of(job, range) - first);
    send_entries(job, own, come, all_here, first, mine, fours);
    wait_for_cluster(all_here, 0);
  } else {
    __syncthreads();
  }
  add_entries<T, kCols>(job, come, folds, job.first + (int)blockIdx.z, range);
}

template <typename T, int kCols>
__global__ void __launch_bounds__(kClusterWarps *kWarp, 1)
    attention_few_cluster_kernel(const __grid_constant__ few_cluster_job job)
{
  constexpr int kFours = kCols / 4;
  extern __shared__ float4 memory[];
  __shared__ uint4 queries[kCols / 16][kWarp]; /* operands; padding repeats the last head */
  __shared__ mbarrier all_here;
  __shared__ few_range range; /* in shared memory: registers are for loads in flight */
  __shared__ const char *volatile rows[2];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, q = lane % 4;
  const int warps = (int)blockDim.x / kWarp, b = job.first + (int)blockIdx.z;
  const few_range seen = job.lengths ? read_range(job, b) : few_range{job.begin, job.end, false};
  const int first = ((int)blockIdx.x * warps + warp) * job.run; /* the warp's first entry */
  int key = seen.begin + (first << job.fold) * job.keys;
  const int stop = min(seen.end, key + (job.run << job.fold) * job.keys);
  const char *const keys = job.k + b * job.k_batch + blockIdx.y * job.k_head;
  const char *const values = job.v + b * job.v_batch + blockIdx.y * job.v_head;
  few_operands<kCols> x;
  if (key < stop) {
    ask_keys(x, keys, job.k_row, key, seen.end - 1);
    ask_values(x, values, job.v_row, key, seen.end - 1);
  }
  if (threadIdx.x == 0) {
    range = seen;
    rows[0] = keys;
    rows[1] = values;
    if (job.shift > 0) {
      const int mine = share_of(job, job.group * kFours).count;
      init_barrier(&all_here, 1);
      publish_barriers();
      arrive_expecting(&all_here, (unsigned)(parts_of(job, seen) * (mine * 16 + job.group * 8)));
    }
  }
  if (job.shift > 0) {
    __syncwarp();
    arrive_in_cluster();
  }
  const char *const head = job.q + b * job.q_batch +
                           ((int)blockIdx.y * job.group + min(g, job.group - 1)) * job.q_head +
                           q * 16;
#pragma unroll 1
  for (int d = warp; d < kCols / 16; d += warps) {
    const uint2 two = *reinterpret_cast<const uint2 *>(head + d / 2 * 64 + d % 2 * 8);
    queries[d][lane] = make_uint4(two.x, 0, two.y, 0);
  }
  __syncthreads();
  if (key < stop) {
    float o[kCols / 16][4] = {};
    few_top state = {-CUDART_INF_F, 0};
    int unit = 0, left = job.keys;
#pragma unroll 1
    for (; key < stop; key += kClusterKeys) {
      float s[2][4], factor;
      uint32_t p[2];
      const int end = *(const volatile int *)&range.end, next = key + kClusterKeys;
      score_few<T, kCols>(s, x, shared_address(queries));
      if (next < stop) {
        ask_keys(x, rows[0], job.k_row, next, end - 1);
      }
      if (job.cap_by > 0) {
        cap_scores(s[0], job.softcap, job.cap_by);
        cap_scores(s[1], job.softcap, job.cap_by);
      }
      weigh_few<T>(p, s, state, factor, job.exponent, end - key - 2 * q);
      rescale_few<kCols>(o, factor);
      if (next > end) {
        drop_values(x, end - key - 2 * q);
      }
      add_few<T, kCols>(o, x, p);
      left -= kClusterKeys;
      if (left == 0 || next >= stop) {
        const int entry = warp * job.run + (unit >> job.fold);
        float2 *const ends =
            reinterpret_cast<float2 *>(memory + warps * job.run * job.group * kFours);
        leave_unit<kCols>(memory + entry * job.group * kFours, ends + entry * job.group, job.group,
                          unit == unit >> job.fold << job.fold, state, o);
        unit++;
        left = job.keys;
        state = {-CUDART_INF_F, 0};
#pragma unroll
        for (int i = 0; i < kCols / 16; i++) {
#pragma unroll
          for (int j = 0; j < 4; j++) {
            o[i][j] = 0;
          }
        }
      }
      if (next < stop) {
        ask_values(x, rows[1], job.v_row, next, end - 1);
      }
    }
  }
  finish_few<T, kCols>(job, memory, &all_here, range, first);
}

/* ---- host ---- */

/** One launch for as many sequences as a grid axis allows, then the next. */
template <typename T, int kCols>
tg_status run_cluster_tiles(const tg_context *ctx, const tg_attention_fwd_args *a,
                            const few_cluster_plan &p)
{
  few_cluster_job job = cluster_job_of(ctx, a, p);
  const auto kernel = attention_few_cluster_kernel<T, kCols>;
  cluster_launch l;
  const cudaError_t e =
      prepare_clusters(ctx, (const void *)kernel, p.blocks, p.warps * kWarp, p.shared, &l);
  tg_status status = TG_OK;
  for (int64_t first = 0; first < p.l.batch && status == TG_OK; first += kMostGrid) {
    const int64_t left = p.l.batch - first;
    job.first = (int)first;
    l.config.gridDim.y = (unsigned)p.l.kv_heads;
    l.config.gridDim.z = (unsigned)(left < kMostGrid ? left : kMostGrid);
    status = launch_clusters(ctx, e, kernel, &l, 1, job);
  }
  return status;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
