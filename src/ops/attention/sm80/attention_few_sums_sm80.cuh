/** Attention forward of few queries by mma.sync: the addition of partial sums. Warps add theirs in
 * shared memory; those of a split go to memory, where the tile's last block adds them. Always in
 * the order of the keys. */
#ifndef TGI_OPS_ATTENTION_FEW_SUMS_SM80_CUH
#define TGI_OPS_ATTENTION_FEW_SUMS_SM80_CUH

#include "ops/attention/sm80/attention_few_place_sm80.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kUnder = 8; /* splits whose sums are in flight at once */

/** Maximum and sum of each line of the exchange; few_job says how many lines a warp has. */
struct few_ends {
  float top[16 * kFewWarps], sum[16 * kFewWarps];
};

/** Four elements of a row, and the maximum and sum of its exponents. */
struct few_sums {
  float o[4], top, sum;
};

/** Adds the sums of later keys in order. The maximum is computed first, so the loads do not depend
 * on each other. */
template <int kN>
__device__ __forceinline__ void add_sums(few_sums &to, const float4 (&o)[kN],
                                         const float2 (&end)[kN])
{
  float most = to.top;
#pragma unroll
  for (int i = 0; i < kN; i++) {
    most = fmaxf(most, end[i].x);
  }
  const float base = most > -CUDART_INF_F ? most : 0.0f, before = exp2_flushed(to.top - base);
  to.top = most;
  to.sum *= before;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    to.o[j] *= before;
  }
#pragma unroll
  for (int i = 0; i < kN; i++) {
    const float now = exp2_flushed(end[i].x - base), more[4] = {o[i].x, o[i].y, o[i].z, o[i].w};
    to.sum = fmaf(end[i].y, now, to.sum);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      to.o[j] = fmaf(more[j], now, to.o[j]);
    }
  }
}

/** Stores elements column .. column + 3 of a row's results, and with the first ones its lse. */
template <typename T>
__device__ __forceinline__ void store_results(const few_job &job, const few_place &x, int r,
                                              int column, const few_sums &sums)
{
  const int row = x.row0 + r, query = job.group.quotient(row);
  const int head = x.all.head + row - query * job.group.divisor;
  const row_result end =
      finish_row(sums.top, sums.sum, job.sinks.data ? job.sinks.at(head) : -CUDART_INF_F);
  const uint32_t words[2] = {round_pair<T>(sums.o[0] * end.factor, sums.o[1] * end.factor),
                             round_pair<T>(sums.o[2] * end.factor, sums.o[3] * end.factor)};
  store_words(job.out.data + job.out.at(x.all.q_index, query, head) + column, words);
  if (job.lse && column == 0) {
    job.lse[((int64_t)x.all.q_index * job.l.q_heads + head) * job.l.nq + query] = end.lse;
  }
}

/** Counts a block of the tile that has written its sums: true in all threads of the last one. */
__device__ __forceinline__ bool is_last_block(const few_job &job, const few_place &x)
{
  __syncthreads(); /* all threads' stores precede thread 0's count */
  if (x.parts <= job.run) {
    return true;
  }
  bool last = false;
  if (threadIdx.x == 0) {
    uint32_t before, *const count = job.counts + x.tile;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(__cvta_generic_to_global(count))
                 : "memory");
    last = (before + 1) * (uint32_t)job.run >= (uint32_t)x.parts;
    if (last) {
      *count = 0; /* zero again, as the next call expects */
    }
  }
  return __syncthreads_or(last);
}

/** Adds the sums of the tile's splits, and stores its results. */
template <typename T, int kCols>
__device__ __forceinline__ void add_splits(const few_job &job, const few_place &x)
{
  const int width = job.from.v_dim;
  const int64_t first = x.tile * job.splits * job.rows, step = (int64_t)job.rows * width;
#pragma unroll 1
  for (int e = threadIdx.x; e < x.rows * (kCols / 4); e += kFewWarps * kWarp) {
    const int r = e / (kCols / 4), column = e % (kCols / 4) * 4;
    if (column >= width) {
      continue;
    }
    const float *o = job.sums + (first + r) * width + column;
    const float2 *ends = job.ends + first + r;
    few_sums sums = {{0, 0, 0, 0}, -CUDART_INF_F, 0};
#pragma unroll 1
    for (int part = 0; part < x.parts; part += kUnder) {
      float4 v[kUnder];
      float2 end[kUnder];
#pragma unroll
      for (int i = 0; i < kUnder; i++) {
        const bool exists = part + i < x.parts;
        v[i] = exists ? __ldcg(reinterpret_cast<const float4 *>(o + i * step)) : float4{};
        end[i] = exists ? __ldcg(ends + i * job.rows) : make_float2(-CUDART_INF_F, 0);
      }
      add_sums(sums, v, end);
      o += kUnder * step;
      ends += kUnder * job.rows;
    }
    store_results<T>(job, x, r, column, sums);
  }
}

/** Adds the sums of the block's warps, in the exchange: to results or, of split `part` of several,
 * to the tile's sums in memory. `bad`: the block met data out of range. */
template <typename T, int kCols>
__device__ __forceinline__ void leave_split(const few_job &job, const few_place &x, int part,
                                            const float *exchange, const few_ends &ends, bool bad)
{
  const int width = job.from.v_dim, step = job.lines * job.row_warps; /* between sets of warps */
  const int64_t first = (x.tile * job.splits + part) * job.rows;
#pragma unroll 1
  for (int e = threadIdx.x; e < x.rows * (kCols / 4); e += kFewWarps * kWarp) {
    const int r = e / (kCols / 4), column = e % (kCols / 4) * 4;
    if (column >= width) {
      continue;
    }
    float4 v[kFewWarps];
    float2 end[kFewWarps];
#pragma unroll
    for (int w = 0; w < kFewWarps; w++) {
      const bool exists = w * job.row_warps < kFewWarps;
      const int line = r + (exists ? w * step : 0);
      const float *const from = exchange + line * exchange_pitch(kCols) + column;
      v[w] = exists ? *reinterpret_cast<const float4 *>(from) : float4{};
      end[w] = exists ? make_float2(ends.top[line], ends.sum[line]) : make_float2(-CUDART_INF_F, 0);
    }
    few_sums sums = {{0, 0, 0, 0}, -CUDART_INF_F, 0};
    add_sums(sums, v, end);
    sums.sum = bad ? CUDART_NAN_F : sums.sum;
    if (x.parts == 1) {
      store_results<T>(job, x, r, column, sums);
      continue;
    }
    __stcg(reinterpret_cast<float4 *>(job.sums + (first + r) * width + column),
           make_float4(sums.o[0], sums.o[1], sums.o[2], sums.o[3]));
    if (column == 0) {
      __stcg(job.ends + first + r, make_float2(sums.top, sums.sum));
    }
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
