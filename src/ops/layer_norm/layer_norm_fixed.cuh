/**
 * Fixed-width LayerNorm forward for contiguous bf16 rows with a bias.
 *
 * Method     Width and strides are compile-time constants: no bounds checks within a row and
 *            constant address offsets. The bits are those of the general kernels.
 * Work       One block per row, or several rows per warp for width 128.
 * Bound      Memory bandwidth; for few rows the latency of one row.
 */
#ifndef TGI_OPS_LAYER_NORM_FIXED_CUH
#define TGI_OPS_LAYER_NORM_FIXED_CUH

#include "cuda/rows/dealt_sum.cuh"
#include "ops/layer_norm/layer_norm_vectors.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/**
 * One block per row, with the threads of the general layout. kEarly: weight and bias are loaded
 * with x. kBlocks: minimum of resident blocks per multiprocessor, which limits the registers.
 */
template <typename T, int kCols, bool kEarly, int kBlocks>
__global__ void __launch_bounds__(lay_rows(kCols, kLanes<T>, kShortRow).threads, kBlocks)
    layer_norm_fwd_fixed_kernel(const layer_forward given)
{
  constexpr row_layout kAny = lay_rows(kCols, kLanes<T>, kShortRow);
  constexpr int kN = kLanes<T>, kStep = kCols / kN, kVectors = kStep / kAny.threads;
  static_assert(kCols == kVectors * kAny.threads * kN && kVectors <= kAny.vectors, "whole vectors");
  __shared__ float scratch[kScratch];
  layer_forward f = given;
  f.layout = make_layout(kAny.threads, 1, kVectors);
  f.inverse = 1 / (float)kCols;
  const int thread = threadIdx.x, row = blockIdx.x;
  const int64_t at = (int64_t)row * kStep + thread;
  const uint4 *from = static_cast<const uint4 *>(f.x) + at;
  const uint4 *weight = static_cast<const uint4 *>(f.weight) + thread;
  const uint4 *bias = static_cast<const uint4 *>(f.bias) + thread;
  uint4 *to = static_cast<uint4 *>(f.y) + at;
  row_bits<T, kN> x[kVectors], w[kVectors], b[kVectors];
#pragma unroll
  for (int k = 0; k < kVectors; k++) {
    x[k].q[0] = from[k * kAny.threads];
  }
#pragma unroll
  for (int k = 0; k < kVectors && kEarly; k++) {
    w[k].q[0] = load_constant_now(weight + k * kAny.threads);
    b[k].q[0] = load_constant_now(bias + k * kAny.threads);
  }
  float sums[2] = {0, 0};
#pragma unroll
  for (int k = 0; k < kVectors; k++) {
    add_values(sums, x[k]);
  }
  const moments m = moments_of<T>(f, sums, scratch, [&](auto body) {
#pragma unroll
    for (int k = 0; k < kVectors; k++) {
      keep_bits(x[k]);
      body(x[k], kN);
    }
  });
  if (thread == 0) {
    write_moments(f, row, m);
  }
#pragma unroll
  for (int k = 0; k < kVectors; k++) {
    keep_bits(x[k]);
    if constexpr (!kEarly) {
      w[k].q[0] = __ldg(weight + k * kAny.threads);
      b[k].q[0] = __ldg(bias + k * kAny.threads);
    }
    float y[kN];
    results(y, m, x[k], w[k], b[k]);
    pack_bits(x[k], y);
    to[k * kAny.threads] = x[k].q[0];
  }
}

/**
 * Short rows, each on a part of a warp. A thread has its vectors of kRows rows. A transpose-reduce
 * (m.cuh) sums all rows at once and leaves each lane one total: the sum or the sum of
 * squares of one row. The lane then computes the moments of that row.
 */
template <typename T, int kCols, int kRows, int kWarps>
__global__ void __launch_bounds__(kWarp *kWarps, 1)
    layer_norm_fwd_narrow_kernel(const layer_forward f)
{
  constexpr row_layout kAny = lay_rows(kCols, kLanes<T>, kShortRow);
  constexpr int kN = kLanes<T>, kThreads = kAny.threads, kVectors = kAny.vectors;
  constexpr int kStep = kCols / kN, kSets = kWarp / kThreads, kEach = kThreads / kRows;
  static_assert(kStep == kVectors * kThreads && kThreads < kWarp, "whole vectors, several rows");
  constexpr float kInverse = 1 / (float)kCols;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, thread = lane % kThreads;
  const int rows = (int)f.rows;
  const int row = (blockIdx.x * kWarps + warp) * (kSets * kRows) + lane / kThreads;
  const int64_t at = (int64_t)row * kStep + thread;
  const uint4 *from = static_cast<const uint4 *>(f.x) + at;
  const uint4 *weight = static_cast<const uint4 *>(f.weight) + thread;
  const uint4 *bias = static_cast<const uint4 *>(f.bias) + thread;
  uint4 *to = static_cast<uint4 *>(f.y) + at;
  row_bits<T, kN> x[kRows][kVectors], w[kVectors], b[kVectors];
#pragma unroll
  for (int u = 0; u < kRows; u++) {
#pragma unroll
    for (int k = 0; k < kVectors; k++) {
      x[u][k].q[0] =
          row + u * kSets < rows ? from[u * kSets * kStep + k * kThreads] : make_uint4(0, 0, 0, 0);
    }
  }
#pragma unroll
  for (int k = 0; k < kVectors; k++) {
    w[k].q[0] = load_constant_now(weight + k * kThreads);
    b[k].q[0] = load_constant_now(bias + k * kThreads);
  }
  float sums[2 * kRows]; /* alternating: of a row, of its squares */
#pragma unroll
  for (int u = 0; u < kRows; u++) {
    float both[2] = {0, 0};
#pragma unroll
    for (int k = 0; k < kVectors; k++) {
      add_values(both, x[u][k]);
    }
    sums[2 * u] = both[0];
    sums[2 * u + 1] = both[1];
  }
  const float one = dealt_sum<kThreads>(sums, lane);
  const bool has_squares = lane & (kEach / 2);
  const float other = __shfl_xor_sync(kAllLanes, one, kEach / 2);
  const float squares = has_squares ? one : other;
  moments own = {(has_squares ? other : one) * kInverse, 0, 0}; /* moments of row thread / kEach */
  float variance = fmaf(-own.mean, own.mean, squares * kInverse);
  float mean[kRows], correction[kRows] = {}, rstd[kRows];
  collect<kThreads>(mean, own.mean, lane);
  const bool cancels = own.mean * own.mean > variance;
  if (__any_sync(kAllLanes, cancels)) {
    float shift = 0, spread = 0;
#pragma unroll 1
    for (int u = 0; u < kRows; u++) { /* rare path; not unrolled to keep its code small */
      row_bits<T, kN> v[kVectors];
      float about[2] = {0, 0}, near = mean[0];
#pragma unroll
      for (int k = 0; k < kVectors; k++) {
        v[k] = x[0][k];
      }
#pragma unroll
      for (int i = 1; i < kRows; i++) { /* a variable index would put x into local memory */
        if (u == i) {
          near = mean[i];
#pragma unroll
          for (int k = 0; k < kVectors; k++) {
            v[k] = x[i][k];
          }
        }
      }
#pragma unroll
      for (int k = 0; k < kVectors; k++) {
        add_differences(about, near, v[k], kN);
      }
#pragma unroll
      for (int step = kThreads / 2; step > 0; step /= 2) {
        about[0] += __shfl_xor_sync(kAllLanes, about[0], step);
        about[1] += __shfl_xor_sync(kAllLanes, about[1], step);
      }
      const float mean_d = about[0] * kInverse;
      const float by_d = fmaf(-mean_d, mean_d, about[1] * kInverse);
      shift = u == thread / kEach ? mean_d : shift;
      spread = u == thread / kEach ? by_d : spread;
    }
    if (cancels) {
      use_differences(own, variance, shift, spread);
    }
    collect<kThreads>(correction, own.correction, lane);
  }
  own.rstd = inverse_root(variance + f.eps);
  collect<kThreads>(rstd, own.rstd, lane);
  const int own_row = row + thread / kEach * kSets;
  if (thread % kEach == 0 && own_row < rows) {
    write_moments(f, own_row, own);
  }
#pragma unroll
  for (int k = 0; k < kVectors; k++) {
#pragma unroll
    for (int u = 0; u < kRows; u++) {
      const moments m = {mean[u], correction[u], rstd[u]};
      keep_bits(x[u][k]);
      float y[kN];
      results(y, m, x[u][k], w[k], b[k]);
      pack_bits(x[u][k], y);
      if (row + u * kSets < rows) {
        to[u * kSets * kStep + k * kThreads] = x[u][k].q[0];
      }
    }
  }
}

template <typename T, int kCols, bool kEarly, int kBlocks>
tg_status launch_fixed(const tg_context *ctx, const layer_forward &f)
{
  constexpr int kThreads = lay_rows(kCols, kLanes<T>, kShortRow).threads;
  return launch(ctx, layer_norm_fwd_fixed_kernel<T, kCols, kEarly, kBlocks>, dim3((unsigned)f.rows),
                kThreads, 0, f);
}

template <typename T, int kCols, int kRows, int kWarps>
tg_status launch_narrow(const tg_context *ctx, const layer_forward &f)
{
  constexpr int kThreads = lay_rows(kCols, kLanes<T>, kShortRow).threads;
  const dim3 grid((unsigned)divide_up(f.rows, kWarps * kWarp / kThreads * kRows));
  return launch(ctx, layer_norm_fwd_narrow_kernel<T, kCols, kRows, kWarps>, grid, kWarp * kWarps, 0,
                f);
}

/** Returns TG_UNSUPPORTED if no fixed-width kernel fits the rows. */
template <typename T> tg_status launch_for_width(const tg_context *ctx, const layer_forward &f)
{
  if (!f.whole || !f.bias || f.x_step != f.cols || f.y_step != f.cols || f.rows > INT32_MAX / 2) {
    return TG_UNSUPPORTED;
  }
  switch (f.cols) {
  case 128:
    return launch_narrow<T, 128, 2, 4>(ctx, f);
  case 768:
    return launch_fixed<T, 768, false, 32>(ctx, f);
  case 1024:
    return launch_fixed<T, 1024, true, 20>(ctx, f);
  case 2048:
    return launch_fixed<T, 2048, false, 1>(ctx, f);
  case 4096: /* with few rows multiprocessors are idle and the latency of a row counts */
    return f.rows <= 512 ? launch_fixed<T, 4096, true, 1>(ctx, f)
                         : launch_fixed<T, 4096, false, 1>(ctx, f);
  case 8192:
    return launch_fixed<T, 8192, false, 4>(ctx, f);
  default:
    return TG_UNSUPPORTED;
  }
}
} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
