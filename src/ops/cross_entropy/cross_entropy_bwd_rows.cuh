/** Rows of the backward of cross-entropy on CUDA: the gradient of a row from its lse. */
#ifndef TGI_OPS_CROSS_ENTROPY_BWD_ROWS_CUH
#define TGI_OPS_CROSS_ENTROPY_BWD_ROWS_CUH

#include "ops/cross_entropy/loss_rows.cuh"

inline namespace TGI_CUDA_ENTRY
{

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

} // namespace TGI_CUDA_ENTRY

#endif
