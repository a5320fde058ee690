/* Cross-entropy on CUDA: the forward. cross_entropy_bwd.cu has the backward.
 *
 * Method     The row is read once: each thread has a running maximum of its own, which corrects its
 *            sum of exponentials where a vector raises it (Milakov & Gimelshein 2018), and the
 *            block's sums are put together in f64. The largest logit's place is found again in the
 *            vector that a thread remembers. A second kernel of one block adds the rows' losses in
 *            f64, in an order that depends on the number of rows alone.
 * Work       A block for a row; its threads depend on the vocabulary and the dtype alone, and so
 *            does who adds what (loss_rows.cuh).
 * Bound      Memory: reads the logits.
 */
#include "ops/cross_entropy/loss_rows.cuh"

#include <float.h>
#include <math_constants.h>

namespace
{

constexpr int kRowThreads = 512; /* at most */
constexpr int kAhead = 4;        /* vectors of a thread at once */
constexpr int kLossThreads = 1024;

template <typename T> struct fwd_job {
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
  int64_t vector; /* the first that holds the largest */
};

/* n elements of v count. */
template <bool kCapped, int N>
__device__ __forceinline__ void absorb(row_scan *r, const float (&v)[N], int n, int64_t vector,
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
    r->vector = vector;
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
  const int threads = blockDim.x;
  /* Behind a vector below `whole` there is another one. */
  const int64_t whole = cols / kN - 1, vectors = divide_up(cols, kN);
  int64_t start = 0;
  float v[kN];
#pragma unroll 1
  for (; start + (int64_t)kAhead * threads <= whole; start += (int64_t)kAhead * threads) {
    uint4 bits[kAhead];
    load_row_vectors(bits, row, start + threadIdx.x, threads);
#pragma unroll
    for (int u = 0; u < kAhead; u++) {
      widen<T>(v, bits[u]);
      absorb<kCapped>(&r, v, kN, start + u * threads + threadIdx.x, softcap, smoothed);
    }
  }
#pragma unroll 1
  for (; start < vectors; start += threads) {
    const int64_t vector = start + threadIdx.x;
    int n = kN;
    if (start + threads <= whole) { /* the same for all threads */
      uint4 bits[1];
      load_row_vectors(bits, row, vector, threads);
      widen<T>(v, bits[0]);
    } else if ((uintptr_t)row % 16 == 0 && vector <= whole) {
      widen<T>(v, reinterpret_cast<const uint4 *>(row)[vector]);
    } else {
      n = load_ragged(v, row, vector, cols);
    }
    absorb<kCapped>(&r, v, n, vector, softcap, smoothed);
  }
  return r;
}

/* The smallest of the block's indices; scratch: 32 elements. */
__device__ __forceinline__ int64_t block_first(int64_t v, int64_t *scratch)
{
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
    const int64_t first = r.vector * kN;
    for (int i = kN - 1; i >= 0; i--) {
      at = first + i < cols && to_f32(row[first + i]) == largest ? first + i : at;
    }
  }
  at = block_first(at, scratch);
  return at == INT64_MAX ? 0 : at;
}

template <typename T>
__device__ __forceinline__ void put_row(const fwd_job<T> &job, int64_t i, float loss,
                                        float log_prob, float lse, int64_t argmax)
{
  job.token_loss[i] = loss;
  if (job.log_prob) {
    job.log_prob[i] = log_prob;
  }
  if (job.lse) {
    job.lse[i] = lse;
  }
  if (job.argmax.data) {
    put_int(job.argmax, i, argmax);
  }
}

template <typename T, bool kCapped>
__global__ void __launch_bounds__(kRowThreads, kCapped ? 1 : 2)
    cross_entropy_fwd_kernel(const __grid_constant__ fwd_job<T> job)
{
  __shared__ double sums[2 * kWarp];
  __shared__ float shifts[kWarp], most[kWarp];
  __shared__ int64_t places[kWarp];
  const int64_t cols = job.rule.vocab;
  const bool smoothed = job.label_smoothing > 0;
  for (int64_t i = blockIdx.x; i < job.rule.rows; i += gridDim.x) {
    const int64_t target = int_at(job.rule.targets, i);
    if (is_ignored(job.rule, target) || !is_class(job.rule, target)) {
      const bool bad = !is_ignored(job.rule, target);
      if (threadIdx.x == 0) {
        const float v = bad ? CUDART_NAN_F : 0.0f;
        put_row(job, i, v, v, v, -1);
        if (bad) {
          record_fault(job.rule.bad, i, target, 0, cols - 1);
        }
      }
      continue;
    }
    const T *row = job.logits + i * job.step;
    row_scan r = scan_row<kCapped>(row, cols, job.softcap, smoothed);
    const float largest = block_max(r.largest, most), shift = block_max(r.shift, shifts);
    double both[2] = {(double)(r.sum * exp2_flushed((r.shift - shift) * kLog2E)), (double)r.z_sum};
    block_sum(both, sums);
    int64_t argmax = -1;
    if (job.argmax.data) {
      argmax = find_argmax(row, cols, r, largest, isnan(both[0]), places);
    }
    if (threadIdx.x == 0) {
      const float hit = to_f32(row[target]), z = kCapped ? capped(hit, job.softcap) : hit;
      const double lse = (double)shift + log(both[0]), log_prob = (double)z - lse;
      double loss = -(1 - (double)job.label_smoothing) * log_prob;
      if (smoothed) {
        loss -= (double)job.label_smoothing * (both[1] / (double)cols - lse);
      }
      if (job.z_loss > 0) {
        loss += (double)job.z_loss * lse * lse;
      }
      put_row(job, i, (float)loss, (float)log_prob, (float)lse, argmax);
    }
    __syncthreads(); /* shared memory is free again */
  }
}

__global__ void __launch_bounds__(kLossThreads)
    cross_entropy_fwd_loss_kernel(const float *token_loss, float *loss,
                                  const __grid_constant__ target_rule rule)
{
  __shared__ double sums[2 * kWarp];
  double both[2] = {0, (double)count_rows(rule)};
  for (int64_t i = threadIdx.x; i < rule.rows; i += kLossThreads) {
    both[0] += (double)token_loss[i];
  }
  block_sum(both, sums);
  if (threadIdx.x == 0) {
    loss[0] = (float)(both[0] / divisor(rule, (int64_t)both[1]));
  }
}

template <typename T> tg_status forward(const tg_context *ctx, const tg_cross_entropy_fwd_args *a)
{
  const bool separate = a->reduction == TG_REDUCTION_NONE;
  float *loss = static_cast<float *>(a->loss.data);
  fwd_job<T> job = {};
  job.logits = static_cast<const T *>(a->logits.data);
  job.token_loss = static_cast<float *>(tgi_present(&a->token_loss) ? a->token_loss.data
                                        : separate                  ? a->loss.data
                                                                    : a->workspace);
  job.log_prob = static_cast<float *>(a->log_prob.data);
  job.lse = static_cast<float *>(a->lse.data);
  job.argmax = int_list_of(&a->argmax);
  job.rule = TARGET_RULE(ctx, cross_entropy_fwd, a);
  job.step = tgi_stride(&a->logits, 0);
  job.label_smoothing = a->label_smoothing;
  job.z_loss = a->z_loss;
  job.softcap = a->softcap;
  const int threads = row_threads(job.rule.vocab, a->logits.dtype);
  const dim3 grid = grid_of(job.rule.rows);
  tg_status status = a->softcap > 0
                         ? launch(ctx, cross_entropy_fwd_kernel<T, true>, grid, threads, 0, job)
                         : launch(ctx, cross_entropy_fwd_kernel<T, false>, grid, threads, 0, job);
  if (status != TG_OK) {
    return status;
  }
  if (!separate) {
    return launch(ctx, cross_entropy_fwd_loss_kernel, dim3(1), kLossThreads, 0, job.token_loss,
                  loss, job.rule);
  }
  return job.token_loss == loss
             ? TG_OK
             : copy_bytes(ctx, loss, job.token_loss, (size_t)job.rule.rows * sizeof *loss);
}

} // namespace

extern "C" size_t TGI_WORKSPACE(cross_entropy_fwd)(const tg_context *,
                                                   const tg_cross_entropy_fwd_args *a)
{
  const bool held = a->reduction == TG_REDUCTION_NONE || tgi_present(&a->token_loss);
  return held ? 0 : (size_t)a->logits.shape[0] * sizeof(float);
}

extern "C" tg_status TGI_KERNEL(cross_entropy_fwd)(const tg_context *ctx,
                                                   const tg_cross_entropy_fwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->logits.dtype, T, status = forward<T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(cross_entropy_fwd)(const tg_context *, const tg_cross_entropy_fwd_args *a,
                                            char *text, size_t bytes)
{
  snprintf(text, bytes, "a block of %d threads for a row, read once",
           row_threads(a->logits.shape[1], a->logits.dtype));
}
