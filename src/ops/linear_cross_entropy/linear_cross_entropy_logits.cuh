/**
 * linear_cross_entropy on CUDA: what is done with a row of logits. The scan has its loss; its
 * gradient follows from the lse.
 *
 * Exp     Where gradients are bf16 by the device's unit, else exact: kFast. A call without softcap,
 *         smoothing, z-loss and argmax, as most are, has fewer instructions: kPlain.
 */
#ifndef TGI_OPS_LINEAR_CROSS_ENTROPY_LOGITS_CUH
#define TGI_OPS_LINEAR_CROSS_ENTROPY_LOGITS_CUH

#include "cuda/exp2.cuh"
#include "ops/linear_cross_entropy/linear_cross_entropy_rows.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

constexpr int kScanThreads = 512;               /* each takes 4 neighbours */
constexpr int64_t kPiece = 4 * kScanThreads;    /* logits that a block reads at once, */
constexpr int kScanPieces = 4, kBackPieces = 2; /* several times before it goes on */

__device__ __forceinline__ float capped(float x, float softcap)
{
  return softcap > 0 ? softcap * tanhf(x / softcap) : x;
}

template <bool kFast> __device__ __forceinline__ float exponential(float v)
{
  return kFast ? exp2_flushed(v * 0x1.715476p+0f) : expf(v);
}

/** Of all rows of the call and chunk: nothing but the largest logit and the exponentials. */
__host__ __device__ inline bool is_plain(const lce_call &c, const lce_chunk &chunk)
{
  return c.softcap == 0 && c.label_smoothing == 0 && c.z_loss == 0 && !c.argmax &&
         chunk.cols % 4 == 0;
}

/* ---- scan ---- */

/** What a thread finds in its part of a row. */
struct lce_part {
  float most = -FLT_MAX, sum = 0, z_sum = 0; /* as in lce_sums */
  lce_largest largest;
};

__device__ __forceinline__ lce_largest larger_of(const lce_largest &a, const lce_largest &b)
{
  bool second = b.x > a.x || (b.x == a.x && b.j < a.j);
  if (a.is_nan || b.is_nan) {
    second = b.is_nan && (!a.is_nan || b.j < a.j);
  }
  return second ? b : a;
}

/** Over the block; the result is thread 0's. */
__device__ __forceinline__ lce_largest block_largest(lce_largest v, lce_largest *scratch)
{
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const lce_largest other = {__shfl_xor_sync(kAllLanes, v.x, step),
                               __shfl_xor_sync(kAllLanes, v.is_nan, step),
                               __shfl_xor_sync(kAllLanes, v.j, step)};
    v = larger_of(v, other);
  }
  if (threadIdx.x % kWarp == 0) {
    scratch[threadIdx.x / kWarp] = v;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kScanThreads / kWarp; w++) {
      v = larger_of(v, scratch[w]);
    }
  }
  return v;
}

/** Logits j .. j + 3. */
template <bool kFast, bool kPlain>
__device__ __forceinline__ void absorb(const lce_call &c, const lce_chunk &chunk,
                                       const float (&v)[4], int64_t j, lce_part *s)
{
  float z[4], top = -CUDART_INF_F;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const bool exists = kPlain || j + k < chunk.cols;
    z[k] = kPlain ? v[k] : exists ? capped(v[k], c.softcap) : -CUDART_INF_F;
    top = fmaxf(top, z[k]); /* a NaN shows in the sum */
    if (!kPlain) {
      s->z_sum += exists ? z[k] : 0.0f;
    }
    if (!kPlain && c.argmax && exists) {
      s->largest = larger_of(s->largest, {v[k], v[k] != v[k], j + k});
    }
  }
  if (top > s->most) {
    s->sum *= exponential<kFast>(s->most - top);
    s->most = top;
  }
  s->sum += (exponential<kFast>(z[0] - s->most) + exponential<kFast>(z[1] - s->most)) +
            (exponential<kFast>(z[2] - s->most) + exponential<kFast>(z[3] - s->most));
}

template <bool kFast, bool kPlain>
__device__ __forceinline__ lce_part scan(const lce_call &c, const lce_chunk &chunk, const float *x)
{
  constexpr int kPieces = kPlain ? kScanPieces : 1; /* as registers allow */
  lce_part s;
  s.largest = {-CUDART_INF_F, 0, INT64_MAX};
  for (int64_t first = 4 * threadIdx.x; first < chunk.cols; first += kPieces * kPiece) {
    float v[kPieces][4];
#pragma unroll
    for (int u = 0; u < kPieces; u++) {
      if (first + u * kPiece < chunk.cols) {
        load(v[u], x + first + u * kPiece); /* rows end in whole cache lines */
      }
    }
#pragma unroll
    for (int u = 0; u < kPieces; u++) {
      if (first + u * kPiece < chunk.cols) {
        absorb<kFast, kPlain>(c, chunk, v[u], first + u * kPiece, &s);
      }
    }
  }
  return s;
}

/** Reads the chunk's logits once. A block for a row. */
template <bool kFast, bool kPlain>
__global__ void __launch_bounds__(kScanThreads, resident_blocks(kScanThreads, kPlain ? 3 : 2))
    linear_cross_entropy_scan_kernel(lce_call c, lce_chunk chunk)
{
  __shared__ float max_scratch[kWarp];
  __shared__ double sum_scratch[2 * kWarp];
  __shared__ lce_largest largest_scratch[kWarp];
  const int64_t counted = c.totals->counted;
  for (int64_t n = blockIdx.x; n < chunk.rows && chunk.row0 + n < counted; n += gridDim.x) {
    const lce_part s = scan<kFast, kPlain>(c, chunk, chunk.logits + n * chunk.stride);
    const float most = block_max(s.most, max_scratch);
    double sums[2] = {(double)(s.sum * exponential<kFast>(s.most - most)), (double)s.z_sum};
    block_sum(sums, sum_scratch);
    lce_largest largest = s.largest;
    if (!kPlain && c.argmax) {
      largest = block_largest(largest, largest_scratch);
    }
    if (threadIdx.x == 0) {
      c.row[chunk.row0 + n].chunk = {sums[0], sums[1], most, largest};
    }
    __syncthreads(); /* the scratch is free again */
  }
}

/** The row's results, after its last columns. */
__device__ inline void finish_row(const lce_call &c, lce_row &r)
{
  const double smoothing = (double)c.label_smoothing;
  const double lse = (double)r.shift + log(r.sum), log_prob = (double)r.hit - lse;
  double loss = -(1 - smoothing) * log_prob;
  if (smoothing > 0) {
    loss -= smoothing * (r.z_sum / (double)c.vocab - lse);
  }
  if (c.z_loss > 0) {
    loss += (double)c.z_loss * lse * lse;
  }
  r.lse = (float)lse;
  r.loss = (float)loss;
  store_results(c, r.i, r.loss, (float)log_prob, r.lse, r.argmax);
}

/** What a scan found goes to its rows. A thread for a row: f64 exponentials and logarithms would
 * take the scan's registers. */
__global__ void __launch_bounds__(kCopyThreads)
    linear_cross_entropy_rows_kernel(lce_call c, lce_chunk chunk)
{
  const int64_t counted = c.totals->counted;
  for (int64_t n = blockIdx.x * (int64_t)kCopyThreads + threadIdx.x;
       n < chunk.rows && chunk.row0 + n < counted; n += gridDim.x * (int64_t)kCopyThreads) {
    lce_row r = c.row[chunk.row0 + n];
    const lce_sums &s = r.chunk;
    const float shift = fmaxf(r.shift, s.most);
    r.sum =
        r.sum * exp((double)r.shift - (double)shift) + s.sum * exp((double)s.most - (double)shift);
    r.z_sum += s.z_sum;
    r.shift = shift;
    if (c.argmax && !r.has_nan && (s.largest.is_nan || s.largest.x > r.largest)) {
      r.largest = s.largest.x;
      r.argmax = chunk.col0 + s.largest.j;
      r.has_nan = s.largest.is_nan;
    }
    const int64_t target = r.target - chunk.col0;
    if (target >= 0 && target < chunk.cols) {
      r.hit = capped(chunk.logits[n * chunk.stride + target], c.softcap);
    }
    if (chunk.col0 + chunk.cols == c.vocab) {
      finish_row(c, r);
    }
    c.row[chunk.row0 + n] = r;
  }
}

/* ---- gradient ---- */

/** What the gradients of a row's logits follow from. */
struct lce_slope {
  int64_t target; /* column of the chunk */
  float lse, upstream, p_scale, spread, hit;
};

__device__ __forceinline__ lce_slope slope_of(const lce_call &c, const lce_chunk &chunk,
                                              const lce_row &r)
{
  const double dloss = c.dloss ? (double)c.dloss[c.reduction == TG_REDUCTION_NONE ? r.i : 0] : 1.0;
  lce_slope f;
  f.target = r.target - chunk.col0;
  f.lse = r.lse;
  f.upstream = (float)(dloss / c.totals->divisor);
  f.p_scale = 1 + 2 * c.z_loss * r.lse;
  f.spread = c.label_smoothing / (float)c.vocab;
  f.hit = 1 - c.label_smoothing;
  return f;
}

/** Of logits j .. j + 3. */
template <bool kFast>
__device__ __forceinline__ void gradients(const lce_call &c, const lce_slope &f,
                                          const float (&v)[4], int64_t j, float (&g)[4])
{
#pragma unroll
  for (int k = 0; k < 4; k++) {
    float z = v[k], slope = f.upstream;
    if (c.softcap > 0) {
      const float t = tanhf(z / c.softcap);
      z = c.softcap * t;
      slope = fmaf(-t, t, 1.0f) * f.upstream;
    }
    const float p = exponential<kFast>(z - f.lse);
    g[k] = ((f.p_scale * p - f.spread) - (j + k == f.target ? f.hit : 0.0f)) * slope;
  }
}

/** The same bits where is_plain. */
template <bool kFast>
__device__ __forceinline__ void plain_gradients(const lce_slope &f, const float (&v)[4], int64_t j,
                                                float (&g)[4])
{
  const uint64_t hit = (uint64_t)(f.target - j);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    g[k] = exponential<kFast>(v[k] - f.lse);
  }
  if (hit < 4) {
#pragma unroll
    for (int k = 0; k < 4; k++) {
      g[k] -= k == (int)hit ? f.hit : 0.0f;
    }
  }
#pragma unroll
  for (int k = 0; k < 4; k++) {
    g[k] *= f.upstream;
  }
}

/** The chunk's gradients, in T. In the memory of its logits a row begins where its logits do. A
 * block for a row. */
template <typename T>
__global__ void __launch_bounds__(kScanThreads)
    linear_cross_entropy_gradient_kernel(lce_call c, lce_chunk chunk)
{
  const int64_t counted = c.totals->counted;
  constexpr bool kFast = sizeof(T) < sizeof(float);
  const bool over = chunk.dlogits == chunk.logits, plain = is_plain(c, chunk);
  for (int64_t n = blockIdx.x; n < chunk.rows; n += gridDim.x) {
    const float *x = chunk.logits + n * chunk.stride;
    T *dx = static_cast<T *>(chunk.dlogits) + n * chunk.dstride;
    const bool exists = chunk.row0 + n < counted;
    lce_slope f = {};
    if (exists) {
      f = slope_of(c, chunk, c.row[chunk.row0 + n]);
    }
    for (int64_t first = 4 * threadIdx.x; first - 4 * (int64_t)threadIdx.x < chunk.cols;
         first += kBackPieces * kPiece) {
      float v[kBackPieces][4];
#pragma unroll
      for (int u = 0; u < kBackPieces; u++) {
        if (exists && first + u * kPiece < chunk.cols) {
          load(v[u], x + first + u * kPiece);
        }
      }
      if (sizeof(T) < sizeof(float) && over) {
        __syncthreads(); /* narrow results lie where logits did that are read by now */
      }
#pragma unroll
      for (int u = 0; u < kBackPieces; u++) {
        const int64_t j = first + u * kPiece;
        float g[4] = {0, 0, 0, 0};
        if (exists && plain) {
          plain_gradients<kFast>(f, v[u], j, g);
        } else if (exists) {
          gradients<kFast>(c, f, v[u], j, g);
        }
        if (j < chunk.cols) {
          store(dx + j, g);
        }
      }
    }
  }
}

} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
