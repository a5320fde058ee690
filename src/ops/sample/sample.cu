/* Sampling on CUDA.
 *
 * Method     As on the CPU: cuts by rank are a radix selection on the logits' keys, 11, 11 and 10
 *            bits, with a histogram of counts or weights each; sums of weights are integers, so
 *            their order does not matter. Then the sums of segments of 256 ids find the segment,
 *            and its lanes the id, that the draw falls into. Ids in the history are bits in the
 *            workspace. sample_rows.cuh has the passes over a row.
 * Work       A block for a row, at most kSlots blocks; a warp for a segment, 8 ids a lane.
 * Bound      One multiprocessor's arithmetic: the row is read from the second cache, twice greedily
 *            or without filters, 5 times with top_k or top_p.
 */
#include "core/values/finite_row.h"
#include "ops/kernels.cuh"
#include "ops/sample/sample_rows.cuh"

#include <math_constants.h>

namespace
{

template <typename T>
__device__ __forceinline__ void put_picked(const fwd_job<T> &job, int64_t i, int64_t id,
                                           double log_prob)
{
  put_int(job.ids, i, id);
  if (job.log_prob) {
    job.log_prob[i] = (float)log_prob;
  }
}

/* The largest z, in every thread; NaN if one is, or infinity. */
template <typename T>
__device__ __forceinline__ float find_largest(const fwd_job<T> &job, const row<T> &r,
                                              block_memory *m)
{
  float most = -CUDART_INF_F;
  visit_ids(job, r,
            [&](float z, int) { most = z > most || isnan(z) ? (isnan(most) ? most : z) : most; });
  const bool poisoned = __syncthreads_or(isnan(most));
  most = block_max(most, m->warp_most);
  return poisoned ? CUDART_NAN_F : most;
}

template <typename T>
__device__ __forceinline__ int find_greedily(const fwd_job<T> &job, const row<T> &r,
                                             block_memory *m)
{
  int least = INT32_MAX;
  if (threadIdx.x == 0) {
    m->found = INT32_MAX;
  }
  __syncthreads();
  visit_ids(job, r, [&](float z, int id) { least = z == r.largest && id < least ? id : least; });
  if (least < INT32_MAX) {
    atomicMin(&m->found, least);
  }
  __syncthreads();
  return m->found;
}

template <typename T>
__device__ void pick(const fwd_job<T> &job, const row<T> &r, int64_t i, block_memory *m)
{
  const uint64_t least = share_of(job.min_p, 1ull << 40);
  rank_cut c = {0, 0};
  if (job.top_k > 0 && job.top_k < job.vocab) {
    narrow<false>(job, r, m, &c);
  }
  if (job.top_p > 0 && job.top_p < 1) {
    narrow<true>(job, r, m, &c);
  }
  const auto weight = [&](float z, int id) -> uint64_t {
    if (!is_kept(c, rank_key(z), id)) {
      return 0;
    }
    const uint64_t w = sample_weight(z, r.largest, job.temperature);
    return w >= least ? w : 0;
  };
  const uint64_t sum = sum_segments(job, r, m, weight);
  uint64_t position = (uint64_t)job.position;
  if (job.positions.data) {
    position += (uint64_t)int_at(job.positions, i);
  }
  uint64_t seed = (uint64_t)job.seed, high = (uint64_t)i;
  if (job.seeds.data) {
    seed = (uint64_t)int_at(job.seeds, i);
    high = 0;
  }
  const uint64_t mark = __umul64hi(philox_bits(seed, high, position), sum);
  const int id = find_mark(job, r, m, mark, weight);
  if (threadIdx.x == 0) {
    float z[kEach];
    read_ids(z, job, r, id / kEach * kEach);
    float mine = z[0];
#pragma unroll
    for (int k = 1; k < kEach; k++) {
      mine = k == id % kEach ? z[k] : mine;
    }
    const double shifted = ((double)mine - (double)r.largest) / (double)job.temperature;
    put_picked(job, i, id, shifted - log((double)sum * 0x1p-40));
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    sample_fwd_kernel(const __grid_constant__ fwd_job<T> job)
{
  __shared__ block_memory m;
  char *slot = job.workspace + blockIdx.x * job.slot_bytes;
  row<T> r = {};
  r.segment = reinterpret_cast<uint64_t *>(slot);
  unsigned *bits = reinterpret_cast<unsigned *>(slot + job.segments * sizeof(uint64_t));
  r.penalised = job.penalised ? reinterpret_cast<const unsigned char *>(bits) : NULL;
  for (int64_t i = blockIdx.x; i < job.rows; i += gridDim.x) {
    r.logits = job.logits + i * job.step;
    __syncthreads(); /* the row before is done with the memory */
    const bool known = read_history(job, i, bits, &m);
    r.largest = known ? find_largest(job, r, &m) : CUDART_NAN_F;
    if (!isfinite(r.largest)) {
      if (threadIdx.x == 0) {
        put_picked(job, i, -1, (double)CUDART_NAN_F);
        if (known) {
          record_fault(job.bad_row, i, 0, TGI_NOT_A_FINITE_ROW, 0);
        }
      }
    } else if (job.temperature == 0) {
      const int id = find_greedily(job, r, &m);
      if (threadIdx.x == 0) {
        put_picked(job, i, id, 0);
      }
    } else {
      pick(job, r, i, &m);
    }
  }
}

/* ---- the call ---- */

int64_t slots_of(int64_t rows)
{
  return rows < kSlots ? rows : kSlots;
}

/* The sums of the segments, then the bits of the history. */
int64_t slot_bytes(int64_t vocab)
{
  return divide_up(divide_up(vocab, kSegment) * 8 + divide_up(vocab, 32) * 4, 8) * 8;
}

template <typename T> tg_status forward(const tg_context *ctx, const tg_sample_fwd_args *a)
{
  const bool history = tgi_present(&a->history);
  fwd_job<T> job = {};
  job.logits = static_cast<const T *>(a->logits.data);
  job.history = int_list_of(&a->history);
  job.history_lengths = int_list_of(&a->history_lengths);
  job.positions = int_list_of(&a->positions);
  job.seeds = int_list_of(&a->seeds);
  job.ids = int_list_of(&a->ids);
  job.log_prob = static_cast<float *>(a->log_prob.data);
  job.workspace = static_cast<char *>(a->workspace);
  job.rows = a->logits.shape[0];
  job.step = tgi_stride(&a->logits, 0);
  job.room = history ? a->history.shape[1] : 0;
  job.history_step = history ? tgi_stride(&a->history, 0) : 0;
  job.seed = a->seed;
  job.position = a->position;
  job.vocab = (int)a->logits.shape[1];
  job.segments = (int)divide_up(job.vocab, kSegment);
  job.slot_bytes = slot_bytes(job.vocab);
  job.temperature = a->temperature;
  job.top_p = a->top_p;
  job.min_p = a->min_p;
  job.repetition_penalty = a->repetition_penalty;
  job.top_k = a->top_k;
  job.aligned = rows_aligned(&a->logits, 16);
  job.penalised = history && a->repetition_penalty != 0 && a->repetition_penalty != 1;
  job.bad_row = FAULT_SITE(ctx, sample_fwd, logits);
  job.bad_history = FAULT_SITE(ctx, sample_fwd, history);
  job.bad_length = FAULT_SITE(ctx, sample_fwd, history_lengths);
  return launch(ctx, sample_fwd_kernel<T>, grid_of(slots_of(job.rows)), kThreads, 0, job);
}

} // namespace

extern "C" size_t TGI_WORKSPACE(sample_fwd)(const tg_context *, const tg_sample_fwd_args *a)
{
  return (size_t)(slots_of(a->logits.shape[0]) * slot_bytes(a->logits.shape[1]));
}

extern "C" tg_status TGI_KERNEL(sample_fwd)(const tg_context *ctx, const tg_sample_fwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->logits.dtype, T, status = forward<T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(sample_fwd)(const tg_context *, const tg_sample_fwd_args *a, char *text,
                                     size_t bytes)
{
  snprintf(text, bytes, "a block of %d threads for a row, %s", kThreads,
           a->temperature == 0 ? "largest" : "weighed");
}
