/* Cross-entropy on CUDA: the backward.
 *
 * Method     Each logit becomes its gradient through lse; the target's p - 1 is taken in f32 before
 *            it is rounded. A thread writes the elements that it read, so dlogits may be logits.
 * Work       A block for a row. With a mean each block counts the rows that are not ignored first,
 *            as there is no memory to keep the number in, and then goes through as many rows as
 *            make the counting cheap beside them.
 * Bound      Memory: reads and writes the logits.
 */
#include "ops/cross_entropy/loss_rows.cuh"

#include <math_constants.h>

namespace
{

constexpr int kRowThreads = 512; /* at most */
constexpr int kAhead = 4;        /* vectors of a thread at once */
constexpr int kCountShare = 64;  /* logits for each target that is counted, at least */
constexpr int kPlaces = 8;       /* blocks for a multiprocessor, if there are as many rows */

template <typename T> struct bwd_job {
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

/* A row whose vectors in x and dx begin at the same places. */
template <bool kCapped, typename T>
__device__ __forceinline__ void write_row(const T *x, T *dx, int64_t cols, int64_t target,
                                          const row_facts &f)
{
  constexpr int kN = kLanes<T>;
  const int64_t ahead = (int64_t)(-(intptr_t)x & 15) / (int64_t)sizeof(T);
  const int64_t head = ahead < cols ? ahead : cols;
  const int64_t vectors = (cols - head) / kN;
  const uint4 *from = reinterpret_cast<const uint4 *>(x + head);
  uint4 *to = reinterpret_cast<uint4 *>(dx + head);
  write_elements<kCapped>(x, dx, 0, head, target, f);
#pragma unroll 1
  for (int64_t start = threadIdx.x; start < vectors; start += (int64_t)kAhead * blockDim.x) {
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
      const int64_t k = start + (int64_t)u * blockDim.x, ahead_of = target - (head + k * kN);
      if (k < vectors) {
        const int at = ahead_of >= 0 && ahead_of < kN ? (int)ahead_of : -1;
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

template <typename T, bool kCapped>
__global__ void __launch_bounds__(kRowThreads, kCapped ? 1 : 2)
    cross_entropy_bwd_kernel(const __grid_constant__ bwd_job<T> job)
{
  __shared__ int64_t counts[kWarp];
  const int64_t cols = job.rule.vocab;
  int64_t counted[1] = {0};
  if (job.rule.reduction == TG_REDUCTION_MEAN) {
    counted[0] = count_rows(job.rule);
    block_sum(counted, counts);
  }
  const double n = divisor(job.rule, counted[0]);
  for (int64_t i = blockIdx.x; i < job.rule.rows; i += gridDim.x) {
    const int64_t target = int_at(job.rule.targets, i);
    const T *x = job.logits + i * job.step;
    T *dx = job.dlogits + i * job.dstep;
    if (is_ignored(job.rule, target)) {
      fill_row(dx, cols, 0.0f);
    } else if (!is_class(job.rule, target)) {
      if (threadIdx.x == 0) {
        record_fault(job.rule.bad, i, target, 0, cols - 1);
      }
      fill_row(dx, cols, CUDART_NAN_F);
    } else {
      const double upstream =
          job.dloss ? (double)job.dloss[job.rule.reduction == TG_REDUCTION_NONE ? i : 0] : 1;
      const float lse = job.lse[i];
      const row_facts f = {lse,
                           job.softcap,
                           1 + 2 * job.z_loss * lse,
                           job.label_smoothing / (float)cols,
                           1 - job.label_smoothing,
                           (float)(upstream / n)};
      if (((uintptr_t)x ^ (uintptr_t)dx) % 16 == 0) {
        write_row<kCapped>(x, dx, cols, target, f);
      } else {
        write_elements<kCapped>(x, dx, 0, cols, target, f);
      }
    }
  }
}

/* Blocks; with a mean not one for each row, where counting would take more than a share of it. */
int64_t count_blocks(const tg_context *ctx, int64_t rows, int64_t vocab, tg_reduction reduction)
{
  if (reduction != TG_REDUCTION_MEAN) {
    return rows;
  }
  const int64_t places = (int64_t)ctx->device->multiprocessors * kPlaces;
  const int64_t least = rows < places ? rows : places;
  const int64_t cheap = vocab / kCountShare; /* rows / blocks >= rows * kCountShare / vocab */
  return cheap < least ? least : cheap < rows ? cheap : rows;
}

template <typename T> tg_status backward(const tg_context *ctx, const tg_cross_entropy_bwd_args *a)
{
  bwd_job<T> job = {};
  job.logits = static_cast<const T *>(a->logits.data);
  job.dlogits = static_cast<T *>(a->dlogits.data);
  job.dloss = static_cast<const float *>(a->dloss.data);
  job.lse = static_cast<const float *>(a->lse.data);
  job.rule = TARGET_RULE(ctx, cross_entropy_bwd, a);
  job.step = tgi_stride(&a->logits, 0);
  job.dstep = tgi_stride(&a->dlogits, 0);
  job.label_smoothing = a->label_smoothing;
  job.z_loss = a->z_loss;
  job.softcap = a->softcap;
  const int threads = row_threads(job.rule.vocab, a->logits.dtype);
  const dim3 grid = grid_of(count_blocks(ctx, job.rule.rows, job.rule.vocab, a->reduction));
  return a->softcap > 0 ? launch(ctx, cross_entropy_bwd_kernel<T, true>, grid, threads, 0, job)
                        : launch(ctx, cross_entropy_bwd_kernel<T, false>, grid, threads, 0, job);
}

} // namespace

extern "C" tg_status TGI_KERNEL(cross_entropy_bwd)(const tg_context *ctx,
                                                   const tg_cross_entropy_bwd_args *a)
{
  tg_status status = TG_OK;
  SWITCH_FLOAT(a->logits.dtype, T, status = backward<T>(ctx, a));
  return status;
}

extern "C" void TGI_PLAN(cross_entropy_bwd)(const tg_context *ctx,
                                            const tg_cross_entropy_bwd_args *a, char *text,
                                            size_t bytes)
{
  const int64_t rows = a->logits.shape[0], vocab = a->logits.shape[1];
  snprintf(text, bytes, "%lld blocks of %d threads, a row at a time",
           (long long)count_blocks(ctx, rows, vocab, a->reduction),
           row_threads(vocab, a->logits.dtype));
}
