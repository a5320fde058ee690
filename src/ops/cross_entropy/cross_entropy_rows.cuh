/**
 * Rows of cross-entropy on CUDA: what a block's reading of a row yields, and the row's gradient;
 * and what a call says of them. For the kernels of all directions.
 */
#ifndef TGI_OPS_CROSS_ENTROPY_ROWS_CUH
#define TGI_OPS_CROSS_ENTROPY_ROWS_CUH

#include "ops/cross_entropy/loss_rows.cuh"

#include <float.h>
#include <math_constants.h>

inline namespace TGI_CUDA_ENTRY
{

constexpr int kRowThreads = 512; /* at most */
constexpr int kAhead = 4;        /* vectors of a thread at once */
constexpr int kCountShare = 64;  /* logits for each target that is counted, at least */
constexpr int kPlaces = 8;       /* blocks for a multiprocessor, if there are as many rows */

/* ---- forward ---- */

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

namespace
{

/* The rows' losses, added in f64 in an order that depends on the number of rows alone. */
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_loss_kernel(const float *token_loss, float *loss,
                              const __grid_constant__ target_rule rule)
{
  __shared__ double sums[2 * kWarp];
  double both[2] = {0, (double)count_rows(rule)};
  for (int64_t i = threadIdx.x; i < rule.rows; i += kThreads) {
    both[0] += (double)token_loss[i];
  }
  block_sum(both, sums);
  if (threadIdx.x == 0) {
    loss[0] = (float)(both[0] / divisor(rule, (int64_t)both[1]));
  }
}

} // namespace

/* ---- backward ---- */

template <typename T> struct dlogits_job {
  const T *logits;
  T *dlogits;
  const float *dloss, *lse; /* dloss NULL: 1 */
  target_rule rule;
  int64_t step, dstep; /* elements from row to row */
  float label_smoothing, z_loss, softcap;
};

/* What the elements of a row share. */
struct row_facts {
  float lse, softcap, p_scale, spread, hit, upstream;
};

/* `hit`: what the target's element loses. */
template <bool kCapped>
__device__ __forceinline__ float gradient(float x, const row_facts &f, float hit)
{
  float slope = f.upstream;
  if (kCapped) {
    const float t = tanhf(x / f.softcap);
    x = f.softcap * t;
    slope = (1.0f - t * t) * slope;
  }
  const float p = exp2_flushed((x - f.lse) * kLog2E);
  return (f.p_scale * p - f.spread - hit) * slope;
}

/* Elements first .. last - 1, a thread at a time each. */
template <bool kCapped, typename T>
__device__ __forceinline__ void write_elements(const T *x, T *dx, int64_t first, int64_t last,
                                               int64_t target, const row_facts &f)
{
#pragma unroll 1
  for (int64_t j = first + threadIdx.x; j < last; j += blockDim.x) {
    dx[j] = from_f32<T>(gradient<kCapped>(to_f32(x[j]), f, j == target ? f.hit : 0.0f));
  }
}

/* A row whose vectors in x and dx begin at the same places. kFromEnd: its last vectors first. */
template <bool kCapped, bool kFromEnd, typename T>
__device__ __forceinline__ void write_row(const T *x, T *dx, int64_t cols, int64_t target,
                                          const row_facts &f)
{
  constexpr int kN = kLanes<T>;
  const int64_t ahead = (int64_t)(-(intptr_t)x & 15) / (int64_t)sizeof(T);
  const int64_t head = ahead < cols ? ahead : cols;
  const int64_t vectors = (cols - head) / kN;
  const uint4 *from = reinterpret_cast<const uint4 *>(x + head);
  uint4 *to = reinterpret_cast<uint4 *>(dx + head);
  const int64_t hit_vector = target < head ? -1 : (target - head) / kN;
  const int hit_lane = (int)((target - head) % kN);
  write_elements<kCapped>(x, dx, 0, head, target, f);
  const int64_t span = (int64_t)kAhead * blockDim.x;
  const int spans = (int)divide_up(vectors, span);
#pragma unroll 1
  for (int turn = 0; turn < spans; turn++) {
    const int64_t start = (kFromEnd ? spans - 1 - turn : turn) * span + threadIdx.x;
    uint4 bits[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; u++) {
      const int64_t k = start + (int64_t)u * blockDim.x;
      if (k < vectors) {
        bits[u] = from[k];
      }
    }
#pragma unroll
    for (int u = 0; u < kAhead; u++) {
      const int64_t k = start + (int64_t)u * blockDim.x;
      if (k < vectors) {
        const int at = k == hit_vector ? hit_lane : -1;
        float v[kN], g[kN];
        widen<T>(v, bits[u]);
#pragma unroll
        for (int i = 0; i < kN; i++) {
          g[i] = gradient<kCapped>(v[i], f, i == at ? f.hit : 0.0f);
        }
        to[k] = narrow<T>(g);
      }
    }
  }
  write_elements<kCapped>(x, dx, head + vectors * kN, cols, target, f);
}

/* Ignored rows are 0, rows with a bad target NaN. */
template <typename T> __device__ __forceinline__ void fill_row(T *dx, int64_t cols, float value)
{
  constexpr int kN = kLanes<T>;
  const int64_t ahead = (int64_t)(-(intptr_t)dx & 15) / (int64_t)sizeof(T);
  const int64_t head = ahead < cols ? ahead : cols, vectors = (cols - head) / kN;
  float v[kN];
#pragma unroll
  for (int i = 0; i < kN; i++) {
    v[i] = value;
  }
  const uint4 bits = narrow<T>(v);
  for (int64_t k = threadIdx.x; k < vectors; k += blockDim.x) {
    reinterpret_cast<uint4 *>(dx + head)[k] = bits;
  }
  for (int64_t j = threadIdx.x; j < cols - vectors * kN; j += blockDim.x) {
    dx[j < head ? j : j + vectors * kN] = from_f32<T>(value);
  }
}

/* dloss / n of a row. */
template <typename T>
__device__ __forceinline__ float upstream_of(const dlogits_job<T> &job, int64_t i, double n)
{
  const double dloss =
      job.dloss ? (double)job.dloss[job.rule.reduction == TG_REDUCTION_NONE ? i : 0] : 1;
  return (float)(dloss / n);
}

template <typename T>
__device__ __forceinline__ row_facts facts_of(const dlogits_job<T> &job, float lse, float upstream)
{
  return {lse,
          job.softcap,
          1 + 2 * job.z_loss * lse,
          job.label_smoothing / (float)job.rule.vocab,
          1 - job.label_smoothing,
          upstream};
}

/* A row with a good target, by all threads of a block. */
template <bool kCapped, bool kFromEnd, typename T>
__device__ __forceinline__ void backward_row(const dlogits_job<T> &job, int64_t i, int64_t target,
                                             float lse, double n)
{
  const int64_t cols = job.rule.vocab;
  const T *x = job.logits + i * job.step;
  T *dx = job.dlogits + i * job.dstep;
  const row_facts f = facts_of(job, lse, upstream_of(job, i, n));
  if (((uintptr_t)x ^ (uintptr_t)dx) % 16 == 0) {
    write_row<kCapped, kFromEnd>(x, dx, cols, target, f);
  } else {
    write_elements<kCapped>(x, dx, 0, cols, target, f);
  }
}

/* n of the contract, in every thread; with a mean the block counts the rows that are not ignored.
 * scratch: 32 elements that the call owns until the next barrier after it. */
__device__ __forceinline__ double count_items(const target_rule &rule, int64_t *scratch)
{
  int64_t counted[1] = {0};
  if (rule.reduction == TG_REDUCTION_MEAN) {
    counted[0] = count_rows(rule);
    block_sum(counted, scratch);
  }
  return divisor(rule, counted[0]);
}

/* ---- host; Args: those of any direction that has what is asked for ---- */

/* The forward's workspace: the rows' losses, if nobody else keeps them. */
template <typename Args> size_t loss_bytes(const Args *a)
{
  const bool held = a->reduction == TG_REDUCTION_NONE || tgi_present(&a->token_loss);
  return held ? 0 : (size_t)a->logits.shape[0] * sizeof(float);
}

template <typename T, typename Args> loss_job<T> loss_job_of(const Args *a, const target_rule &rule)
{
  loss_job<T> job = {};
  job.logits = static_cast<const T *>(a->logits.data);
  job.token_loss = static_cast<float *>(tgi_present(&a->token_loss)         ? a->token_loss.data
                                        : a->reduction == TG_REDUCTION_NONE ? a->loss.data
                                                                            : a->workspace);
  job.log_prob = static_cast<float *>(a->log_prob.data);
  job.lse = static_cast<float *>(a->lse.data);
  job.argmax = int_list_of(&a->argmax);
  job.rule = rule;
  job.step = tgi_stride(&a->logits, 0);
  job.label_smoothing = a->label_smoothing;
  job.z_loss = a->z_loss;
  job.softcap = a->softcap;
  return job;
}

template <typename T, typename Args>
dlogits_job<T> dlogits_job_of(const Args *a, const target_rule &rule)
{
  dlogits_job<T> job = {};
  job.logits = static_cast<const T *>(a->logits.data);
  job.dlogits = static_cast<T *>(a->dlogits.data);
  job.dloss = static_cast<const float *>(a->dloss.data);
  job.lse = static_cast<const float *>(a->lse.data);
  job.rule = rule;
  job.step = tgi_stride(&a->logits, 0);
  job.dstep = tgi_stride(&a->dlogits, 0);
  job.label_smoothing = a->label_smoothing;
  job.z_loss = a->z_loss;
  job.softcap = a->softcap;
  return job;
}

/* What becomes of the rows' losses once they are there. */
template <typename T, typename Args>
tg_status reduce_losses(const tg_context *ctx, const Args *a, const loss_job<T> &job)
{
  constexpr int kThreads = 1024;
  float *loss = static_cast<float *>(a->loss.data);
  if (a->reduction != TG_REDUCTION_NONE) {
    return launch(ctx, cross_entropy_loss_kernel<kThreads>, dim3(1), kThreads, 0, job.token_loss,
                  loss, job.rule);
  }
  return job.token_loss == loss
             ? TG_OK
             : copy_bytes(ctx, loss, job.token_loss, (size_t)job.rule.rows * sizeof *loss);
}

/* Blocks; with a mean not one for each row, where counting would take more than a share of it. */
inline int64_t count_blocks(const tg_context *ctx, int64_t rows, int64_t vocab,
                            tg_reduction reduction)
{
  if (reduction != TG_REDUCTION_MEAN) {
    return rows;
  }
  const int64_t places = (int64_t)ctx->device->multiprocessors * kPlaces;
  const int64_t least = rows < places ? rows : places;
  const int64_t cheap = vocab / kCountShare; /* rows / blocks >= rows * kCountShare / vocab */
  return cheap < least ? least : cheap < rows ? cheap : rows;
}

inline void describe_both(const tg_context *ctx, const tg_cross_entropy_fwdbwd_args *a, char *text,
                          size_t bytes)
{
  const int64_t rows = a->logits.shape[0], vocab = a->logits.shape[1];
  snprintf(text, bytes, "%lld blocks of %d threads, a row at a time, forward, then backward",
           (long long)count_blocks(ctx, rows, vocab, a->reduction),
           row_threads(vocab, a->logits.dtype));
}

} // namespace TGI_CUDA_ENTRY

#endif
