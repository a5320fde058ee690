/** Attention forward on tensor cores: the arguments of the kernels, and the end of a row. */
#ifndef TGI_OPS_ATTENTION_FWD_JOB_CUH
#define TGI_OPS_ATTENTION_FWD_JOB_CUH

#include "ops/attention/cuda/attention_fwd_plan.cuh"
#include "ops/attention/cuda/attention_hidden.cuh"
#include "ops/kernels.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

struct fwd_job {
  query_work work;
  fwd_operands from;
  heads_view<uint16_t> out;
  float *lse; /* NULL: not wanted */
  any_vector sinks;
  float exponent; /* scores, after the cap, to exponents of 2 */
  float cap_by;   /* scores to tanh's argument */
  bool packed;    /* the rows after a sequence's last one belong to another */
  /* With splits: [pairs, splits, nq, v_dim], and the maximum and sum of each row. */
  float *sums;
  float2 *ends;
  int splits;
};

/** Computes the final factors of the thread's rows, to state.factor, and writes their lse. Overlaps
 * the last products. */
__device__ __forceinline__ void finish_rows(const fwd_job &job, const query_place &x, int row0,
                                            row_state &state)
{
  const float sink = job.sinks.data ? job.sinks.at(x.head) : -CUDART_INF_F;
#pragma unroll
  for (int r = 0; r < 2; r++) {
    float sum = state.sum[r];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    row_result end = finish_row(state.top[r], sum, sink);
    if (x.state == kOutOfRange) {
      end.factor = end.lse = CUDART_NAN_F;
    }
    const int row = row0 + 8 * r;
    if (job.lse && threadIdx.x % 4 == 0 && row < x.rows) {
      job.lse[((int64_t)x.q_index * job.work.q_heads + x.head) * job.work.nq + x.q_row + row] =
          end.lse;
    }
    state.factor[r] = end.factor;
  }
}

/* ---- host ---- */

inline fwd_job job_of(const tg_attention_fwd_args *a, const attention_fwd_plan &p)
{
  fwd_job job = {};
  char *const memory = static_cast<char *>(a->workspace);
  query_work &w = job.work;
  w = work_of(p.l, {a->causal, p.window}, p.rows, p.keys);
  w.chunk = p.chunk;
  w.half = p.half;
  w.longest_first = p.longest_first;
  w.list = p.lengths ? reinterpret_cast<query_list *>(memory + p.records) : NULL;
  w.taken = p.lengths ? &w.list->taken : p.counted ? reinterpret_cast<int *>(memory) : NULL;
  set_tensors(job, a, p.l);
  job.from.k_rows = (int)p.l.extent;
  job.packed = p.l.packed_q;
  job.splits = p.splits;
  if (p.splits > 1) {
    job.sums = reinterpret_cast<float *>(memory + p.sums);
    job.ends = reinterpret_cast<float2 *>(memory + p.ends);
  }
  return job;
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
