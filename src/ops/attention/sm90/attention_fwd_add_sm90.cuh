/** Attention forward on Hopper, split-KV: the kernel that adds the partial sums of all splits
 * (attention_fwd_splits_sm90.cuh) in the order of the keys. 16 or 32 threads a row, four elements
 * each; each sum is read once, so memory bounds it. */
#ifndef TGI_OPS_ATTENTION_FWD_ADD_SM90_CUH
#define TGI_OPS_ATTENTION_FWD_ADD_SM90_CUH

#include "cuda/half_pair.cuh"
#include "ops/attention/cuda/attention_fwd_job.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kMostSplits = 8, kAddThreads = 256;
constexpr int kMostHidden = 192 + 128; /* queries of a tile and keys of a block: how far behind its
                                          last visible key a query multiplies */

/** Recomputes row `i` of a head, which has a NaN, if a value that it does not see may be the cause.
 * By a warp. */
template <typename T> __device__ void add_row_again(const fwd_job &job, int pair, int i)
{
  query_place x = {};
  x.q_index = x.k_index = pair / job.work.q_heads;
  x.head = pair - x.q_index * job.work.q_heads;
  x.rows = job.work.nq;
  x.end = job.work.extent;
  x.position = job.work.extent - job.work.nq;
  const int kv_head = x.head / job.work.group, first = threadIdx.x % kWarp * kChunk;
  const key_span seen = span_of(job.work.rule, x, i);
  const int from = max(seen.high, 0);
  if (any_not_finite<T>(job.from, x, kv_head, from, from + kMostHidden)) {
    float o[kChunk];
    attend_keys<T>(o, job.from, x, i, kv_head, seen,
                   job.sinks.data ? job.sinks.at(x.head) : -CUDART_INF_F);
    if (first < job.from.v_dim) {
      const uint32_t words[4] = {round_pair<T>(o[0], o[1]), round_pair<T>(o[2], o[3]),
                                 round_pair<T>(o[4], o[5]), round_pair<T>(o[6], o[7])};
      store_words(job.out.data + job.out.at(x.q_index, i, x.head) + first, words);
    }
  }
}

/** Results from the sums of all splits: kLanes threads for a row, four elements each. */
template <typename T, int kLanes>
__global__ void __launch_bounds__(kAddThreads)
    attention_fwd_add_kernel(const __grid_constant__ fwd_job job)
{
  const int nq = job.work.nq, width = job.from.v_dim, pair = blockIdx.x;
  const int row0 = (blockIdx.y * kAddThreads + threadIdx.x / kWarp * kWarp) / kLanes;
  const int row = row0 + threadIdx.x % kWarp / kLanes, column = threadIdx.x % kLanes * 4;
  bool lost = false;
  await_kernel_before();
  if (row < nq && column < width) {
    const int64_t first = (int64_t)pair * job.splits * nq + row;
    float2 end[kMostSplits];
    float4 v[kMostSplits];
#pragma unroll
    for (int i = 0; i < kMostSplits; i++) {
      if (i < job.splits) {
        const int64_t at = first + (int64_t)i * nq;
        end[i] = __ldcg(job.ends + at);
        v[i] = __ldcg(reinterpret_cast<const float4 *>(job.sums + at * width + column));
      }
    }
    float o[4] = {0, 0, 0, 0}, top = -CUDART_INF_F, sum = 0;
#pragma unroll
    for (int i = 0; i < kMostSplits; i++) {
      top = i < job.splits ? fmaxf(top, end[i].x) : top;
    }
    const float base = top > -CUDART_INF_F ? top : 0.0f;
#pragma unroll
    for (int i = 0; i < kMostSplits; i++) {
      /* A split that the row does not see may hold NaN: 0 times a masked value. */
      if (i < job.splits && (end[i].x > -CUDART_INF_F || end[i].y != 0)) {
        const float now = exp2_flushed(end[i].x - base), more[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
        sum = fmaf(end[i].y, now, sum);
#pragma unroll
        for (int j = 0; j < 4; j++) {
          o[j] = fmaf(more[j], now, o[j]);
        }
      }
    }
    const int sequence = pair / job.work.q_heads, head = pair - sequence * job.work.q_heads;
    const row_result result =
        finish_row(top, sum, job.sinks.data ? job.sinks.at(head) : -CUDART_INF_F);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      o[j] *= result.factor;
      lost = lost || o[j] != o[j];
    }
    const uint32_t words[2] = {round_pair<T>(o[0], o[1]), round_pair<T>(o[2], o[3])};
    store_words(job.out.data + job.out.at(sequence, row, head) + column, words);
    if (job.lse && column == 0) {
      job.lse[(int64_t)pair * nq + row] = result.lse;
    }
  }
  const unsigned lanes = __ballot_sync(kAllLanes, lost && job.work.rule.causal);
  if (lanes) {
    __syncwarp(); /* rows are overwritten */
#pragma unroll 1
    for (int r = 0; r < kWarp / kLanes; r++) {
      if (lanes >> r * kLanes & (uint32_t)((1ull << kLanes) - 1)) {
        add_row_again<T>(job, pair, row0 + r);
      }
    }
  }
}

/* ---- host ---- */

/** Launches the addition after the tiles of a call whose keys are split. */
inline tg_status add_splits(const tg_context *ctx, const tg_attention_fwd_args *a,
                            const attention_fwd_plan &p)
{
  const int lanes = p.qk == 64 ? 16 : 32;
  const dim3 grid((unsigned)(p.l.batch * p.l.q_heads),
                  (unsigned)divide_up(p.l.nq * lanes, kAddThreads));
  const fwd_job job = job_of(a, p);
  if (a->q.dtype == TG_F16) {
    return lanes == 16
               ? launch_next(ctx, attention_fwd_add_kernel<f16, 16>, grid, kAddThreads, 0, job)
               : launch_next(ctx, attention_fwd_add_kernel<f16, 32>, grid, kAddThreads, 0, job);
  }
  return lanes == 16
             ? launch_next(ctx, attention_fwd_add_kernel<bf16, 16>, grid, kAddThreads, 0, job)
             : launch_next(ctx, attention_fwd_add_kernel<bf16, 32>, grid, kAddThreads, 0, job);
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
