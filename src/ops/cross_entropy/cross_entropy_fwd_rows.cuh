/** Rows of the forward of cross-entropy on CUDA: what a block's reading of a row yields. */
#ifndef TGI_OPS_CROSS_ENTROPY_FWD_ROWS_CUH
#define TGI_OPS_CROSS_ENTROPY_FWD_ROWS_CUH

#include "ops/cross_entropy/loss_rows.cuh"

#include <float.h>
#include <math_constants.h>

inline namespace TGI_CUDA_ENTRY
{

template <typename T> struct loss_job {
  const T *logits;
  float *token_loss, *log_prob, *lse; /* the last two may be NULL, as argmax.data */
  int_list argmax;
  target_rule rule;
  int64_t step; /* elements from row to row */
  float label_smoothing, z_loss, softcap;
};

/* What the vectors that a thread has read yield. */
struct row_scan {
  float largest; /* logit, before the cap */
  float shift;   /* maximum of z, but finite */
  float sum, z_sum;
  int turn; /* of the thread's first vector that holds the largest */
};

/* n elements of v count. */
template <bool kCapped, int N>
__device__ __forceinline__ void absorb(row_scan *r, const float (&v)[N], int n, int turn,
                                       float softcap, bool smoothed)
{
  float z[N], most = -CUDART_INF_F;
#pragma unroll
  for (int i = 0; i < N; i++) {
    most = i < n ? fmaxf(v[i], most) : most;
    z[i] = i >= n ? -CUDART_INF_F : kCapped ? capped(v[i], softcap) : v[i];
  }
  if (most > r->largest) {
    const float m = kCapped ? capped(most, softcap) : most;
    r->largest = most;
    r->turn = turn;
    if (m > r->shift) {
      r->sum *= exp2_flushed((r->shift - m) * kLog2E);
      r->shift = m;
    }
  }
  float e[N];
#pragma unroll
  for (int i = 0; i < N; i++) {
    e[i] = exp2_flushed((z[i] - r->shift) * kLog2E);
  }
#pragma unroll
  for (int half = N / 2; half > 0; half /= 2) {
#pragma unroll
    for (int i = 0; i < half; i++) {
      e[i] += e[i + half];
    }
  }
  r->sum += e[0];
  if (smoothed) {
#pragma unroll
    for (int i = 0; i < N; i++) {
      r->z_sum += i < n ? z[i] : 0.0f;
    }
  }
}

/* Elements from `vector` on, one by one; how many there are. */
template <typename T>
__device__ __forceinline__ int load_ragged(float (&v)[kLanes<T>], const T *row, int64_t vector,
                                           int64_t cols)
{
  constexpr int kN = kLanes<T>;
  const int64_t rest = cols - vector * kN;
  const int n = rest < 0 ? 0 : rest < kN ? (int)rest : kN;
#pragma unroll
  for (int i = 0; i < kN; i++) {
    v[i] = i < n ? to_f32(row[vector * kN + i]) : 0.0f;
  }
  return n;
}

template <bool kCapped, typename T>
__device__ __forceinline__ row_scan scan_row(const T *row, int64_t cols, float softcap,
                                             bool smoothed)
{
  constexpr int kN = kLanes<T>;
  row_scan r = {-CUDART_INF_F, -FLT_MAX, 0, 0, 0};
  const int threads = blockDim.x, log2_threads = 31 - __clz(threads);
  /* Behind a vector below `whole` there is another one. A turn is a vector of each thread; in a
   * whole one all are below. */
  const int64_t whole = cols / kN - 1;
  const int whole_turns = (int)(whole >> log2_threads);
  const int turns = (int)(divide_up(cols, kN) + threads - 1 >> log2_threads);
  int turn = 0;
  float v[kN];
#pragma unroll 1
  for (; turn + kAhead <= whole_turns; turn += kAhead) {
    uint4 bits[kAhead];
    load_row_vectors(bits, row, (int64_t)turn * threads + threadIdx.x, threads);
#pragma unroll
    for (int u = 0; u < kAhead; u++) {
      widen<T>(v, bits[u]);
      absorb<kCapped>(&r, v, kN, turn + u, softcap, smoothed);
    }
  }
#pragma unroll 1
  for (; turn < turns; turn++) {
    const int64_t vector = (int64_t)turn * threads + threadIdx.x;
    int n = kN;
    if (turn < whole_turns) { /* the same for all threads */
      uint4 bits[1];
      load_row_vectors(bits, row, vector, threads);
      widen<T>(v, bits[0]);
    } else if ((uintptr_t)row % 16 == 0 && vector <= whole) {
      widen<T>(v, reinterpret_cast<const uint4 *>(row)[vector]);
    } else {
      n = load_ragged(v, row, vector, cols);
    }
    absorb<kCapped>(&r, v, n, turn, softcap, smoothed);
  }
  return r;
}

/* The smallest of the block's indices; scratch: 32 elements. */
__device__ __forceinline__ int64_t block_first(int64_t v, int64_t *scratch)
{
#pragma unroll 1
  for (int round = 0; round < 2; round++) {
#pragma unroll
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      const int64_t other = __shfl_xor_sync(kAllLanes, v, distance);
      v = other < v ? other : v;
    }
    if (round == 0) {
      if (threadIdx.x % kWarp == 0) {
        scratch[threadIdx.x / kWarp] = v;
      }
      __syncthreads();
      const int lane = threadIdx.x % kWarp;
      v = lane < (int)blockDim.x / kWarp ? scratch[lane] : INT64_MAX;
    }
  }
  return v;
}

/* The first NaN of the row, else the first of its largest logits. */
template <typename T>
__device__ __forceinline__ int64_t find_argmax(const T *row, int64_t cols, const row_scan &r,
                                               float largest, bool poisoned, int64_t *scratch)
{
  constexpr int kN = kLanes<T>;
  int64_t at = INT64_MAX;
  if (poisoned) { /* a NaN, or an infinity */
#pragma unroll 1
    for (int64_t j = threadIdx.x; j < cols && at == INT64_MAX; j += blockDim.x) {
      at = isnan(to_f32(row[j])) ? j : at;
    }
    at = block_first(at, scratch);
    __syncthreads();
    if (at != INT64_MAX) {
      return at;
    }
  }
  if (r.largest == largest) {
    const int64_t first = ((int64_t)r.turn * blockDim.x + threadIdx.x) * kN;
#pragma unroll 1
    for (int i = kN - 1; i >= 0; i--) {
      at = first + i < cols && to_f32(row[first + i]) == largest ? first + i : at;
    }
  }
  at = block_first(at, scratch);
  return at == INT64_MAX ? 0 : at;
}

struct row_result {
  float loss, log_prob, lse;
};

/* The results of a row from its shift, its sums of exp(z - shift) and of z, and z of its target. */
template <typename T>
__device__ __forceinline__ row_result finish_row(const loss_job<T> &job, float shift,
                                                 const double (&sums)[2], float z)
{
  const double lse = (double)shift + log(sums[0]), log_prob = (double)z - lse;
  double loss = -(1 - (double)job.label_smoothing) * log_prob;
  if (job.label_smoothing > 0) {
    loss -= (double)job.label_smoothing * (sums[1] / (double)job.rule.vocab - lse);
  }
  if (job.z_loss > 0) {
    loss += (double)job.z_loss * lse * lse;
  }
  return {(float)loss, (float)log_prob, (float)lse};
}

template <typename T>
__device__ __forceinline__ void put_row(const loss_job<T> &job, int64_t i, const row_result &r,
                                        int64_t argmax)
{
  job.token_loss[i] = r.loss;
  if (job.log_prob) {
    job.log_prob[i] = r.log_prob;
  }
  if (job.lse) {
    job.lse[i] = r.lse;
  }
  if (job.argmax.data) {
    put_int(job.argmax, i, argmax);
  }
}

/* A row that is ignored, or whose target is none; by one thread. */
template <typename T>
__device__ __forceinline__ void put_skipped(const loss_job<T> &job, int64_t i, int64_t target)
{
  const bool bad = !is_ignored(job.rule, target);
  const float v = bad ? CUDART_NAN_F : 0.0f;
  put_row(job, i, {v, v, v}, -1);
  if (bad) {
    record_fault(job.rule.bad, i, target, 0, job.rule.vocab - 1);
  }
}

struct row_scratch {
  double sums[2 * kWarp];
  int64_t places[kWarp];
  float shifts[kWarp], most[kWarp];
  float lse;
};

/* A row with a good target, by all threads of a block; what it yields goes where the job says, and
 * its lse to the scratch, too. The scratch is shared memory, free after the block's next barrier.
 */
template <bool kCapped, typename T>
__device__ __forceinline__ void forward_row(const loss_job<T> &job, int64_t i, row_scratch *scratch)
{
  const int64_t cols = job.rule.vocab;
  const T *row = job.logits + i * job.step;
  const row_scan r = scan_row<kCapped>(row, cols, job.softcap, job.label_smoothing > 0);
  const float largest = block_max(r.largest, scratch->most);
  const float shift = block_max(r.shift, scratch->shifts);
  double both[2] = {(double)(r.sum * exp2_flushed((r.shift - shift) * kLog2E)), (double)r.z_sum};
  block_sum(both, scratch->sums);
  int64_t argmax = -1;
  if (job.argmax.data) {
    argmax = find_argmax(row, cols, r, largest, isnan(both[0]), scratch->places);
  }
  if (threadIdx.x == 0) { /* the target was not kept during the scan */
    const float hit = to_f32(row[int_at(job.rule.targets, i)]);
    const float z = kCapped ? capped(hit, job.softcap) : hit;
    const row_result result = finish_row(job, shift, both, z);
    put_row(job, i, result, argmax);
    scratch->lse = result.lse;
  }
}

} // namespace TGI_CUDA_ENTRY

#endif
