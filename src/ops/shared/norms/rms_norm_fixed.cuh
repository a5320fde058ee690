/**
 * Fixed-width RMSNorm forward for contiguous bf16 rows, plain or gated.
 *
 * Method     Width and strides are compile-time constants: no bounds checks within a row and
 *            constant address offsets. The bits are those of the general kernels.
 * Work       A block has kGroups sets of threads; each set computes kRows rows with kVectors
 *            vectors per thread. Width 128 also has a kernel on pairs of bf16,
 *            rms_norm_fwd_pairs_kernel.
 * Bound      Memory bandwidth; for few rows the latency of one row (rms_norm_few.cuh).
 */
#ifndef TGI_OPS_RMS_NORM_FIXED_CUH
#define TGI_OPS_RMS_NORM_FIXED_CUH

#include "cuda/half_pair.cuh"
#include "cuda/rows/dealt_sum.cuh"
#include "ops/shared/norms/rms_norm_few.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/**
 * A thread has kVectors vectors of each of kRows rows; a block has kGroups such sets of rows. If
 * rows have twice the threads of the general layout and one vector each, the warp's reduction adds
 * the same pairs first, so the order of the sum is unchanged. kBlocks: minimum of resident blocks
 * per multiprocessor, which limits the registers.
 */
template <norm_kind kKind, typename T, int kCols, int kVectors, int kRows, int kGroups, int kBlocks>
__global__ void __launch_bounds__(kCols / kLanes<T> / kVectors * kGroups, kBlocks)
    rms_norm_fwd_fixed_kernel(const norm_line<kKind> line)
{
  constexpr row_layout kAny = lay_rows(kCols, kLanes<T>, kShortRow);
  constexpr int kN = kLanes<T>, kStep = kCols / kN, kThreads = kStep / kVectors;
  static_assert(kCols == kVectors * kThreads * kN &&
                    (kThreads == kAny.threads || kThreads <= kWarp),
                "whole vectors, added in the other kernel's order");
  __shared__ float scratch[kRows * kWarp];
  norm_forward f = {};
  f.eps = line.eps;
  f.rounds = line.rounds;
  f.inverse = 1 / (float)kCols;
  f.layout = make_layout(kThreads, kGroups, kVectors);
  if constexpr (kKind != kNormGated) {
    f.offset = line.offset;
  }
  const int thread = kGroups == 1 ? (int)threadIdx.x : (int)threadIdx.x % kThreads;
  const int row = blockIdx.x * (kRows * kGroups) + (kGroups == 1 ? 0 : (int)threadIdx.x / kThreads);
  const auto there = [&](int u) { return kRows * kGroups == 1 || row + u * kGroups < line.rows; };
  const int64_t at = (int64_t)row * kStep + thread;
  const uint4 *weight = static_cast<const uint4 *>(line.weight) + thread;
  uint4 *to = static_cast<uint4 *>(line.y) + at;
  row_bits<T, kN> x[kRows][kVectors], other[kRows][kVectors], w[kVectors];
  const auto load_rows = [&](row_bits<T, kN>(&rows)[kRows][kVectors], const void *all) {
    const uint4 *from = static_cast<const uint4 *>(all) + at;
#pragma unroll
    for (int u = 0; u < kRows; u++) {
#pragma unroll
      for (int k = 0; k < kVectors; k++) {
        rows[u][k].q[0] =
            there(u) ? from[u * kGroups * kStep + k * kThreads] : make_uint4(0, 0, 0, 0);
      }
    }
  };
  load_rows(x, line.x);
  if constexpr (kKind == kNormGated) {
    load_rows(other, line.other);
  }
#pragma unroll
  for (int k = 0; k < kVectors; k++) {
    w[k].q[0] = load_constant_now(weight + k * kThreads);
  }
  float squares[kRows] = {};
#pragma unroll
  for (int u = 0; u < kRows; u++) {
#pragma unroll
    for (int k = 0; k < kVectors; k++) {
      squares[u] += square_sum(x[u][k]);
    }
  }
  float gate[kRows][kVectors][kN]; /* silu is computed while the row sum is reduced */
  if constexpr (kKind == kNormGated) {
#pragma unroll
    for (int u = 0; u < kRows; u++) {
#pragma unroll
      for (int k = 0; k < kVectors; k++) {
        unpack(gate[u][k], other[u][k]);
#pragma unroll
        for (int i = 0; i < kN; i++) {
          gate[u][k][i] = silu<T>(gate[u][k][i]);
        }
      }
    }
  }
  row_sum(squares, f.layout, scratch);
  float rstd[kRows];
#pragma unroll
  for (int u = 0; u < kRows; u++) {
    rstd[u] = rstd_of(f, squares[u]);
    if (line.has_rstd && thread == 0 && there(u)) {
      line.rstd[row + u * kGroups] = rstd[u];
    }
  }
#pragma unroll
  for (int k = 0; k < kVectors; k++) {
#pragma unroll
    for (int u = 0; u < kRows; u++) {
      keep_bits(x[u][k]);
      float y[kN];
      results<kKind>(y, f, rstd[u], x[u][k], w[k], [&](int i) { return gate[u][k][i]; });
      pack_bits(x[u][k], y);
      if (there(u)) {
        to[u * kGroups * kStep + k * kThreads] = x[u][k].q[0];
      }
    }
  }
}

/** a * b + c on pairs of bf16, rounded once. */
template <typename T>
__device__ __forceinline__ uint32_t pair_fma(uint32_t a, uint32_t b, uint32_t c)
{
  static_assert(kIsBf16<T>, "");
  uint32_t pair;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(a), "r"(b), "r"(c));
  return pair;
}

/** Element-wise products of vectors of pairs. The addend -0 keeps the sign of a zero product. */
template <typename T> __device__ __forceinline__ uint4 pair_products(uint4 a, uint4 b)
{
  constexpr uint32_t kNothing = 0x80008000u;
  return make_uint4(pair_fma<T>(a.x, b.x, kNothing), pair_fma<T>(a.y, b.y, kNothing),
                    pair_fma<T>(a.z, b.z, kNothing), pair_fma<T>(a.w, b.w, kNothing));
}

/** weight + 0, which turns -0 into 0, as the other kernels compute it with offset 0. */
template <typename T> __device__ __forceinline__ uint4 plus_zero(uint4 weight)
{
  constexpr uint32_t kOnes = 0x3f803f80u;
  return make_uint4(pair_fma<T>(weight.x, kOnes, 0), pair_fma<T>(weight.y, kOnes, 0),
                    pair_fma<T>(weight.z, kOnes, 0), pair_fma<T>(weight.w, kOnes, 0));
}

/**
 * Short rows, each on a part of a warp, with policy llama and no offset. A thread has one vector of
 * each of kRows rows. The normalised row and the weight are both bf16, so their product has 16
 * significant bits. f32 holds it exactly wherever bf16 does not round it to 0. One bf16x2 fma per
 * pair, rounded once, therefore gives the bits of an f32 product that is then rounded.
 */
template <typename T, int kCols, int kRows, int kWarps, int kBlocks>
__global__ void __launch_bounds__(kWarp *kWarps, kBlocks)
    rms_norm_fwd_pairs_kernel(const norm_forward f)
{
  constexpr int kN = kLanes<T>, kThreads = kCols / kN, kSets = kWarp / kThreads;
  static_assert(kThreads * kN == kCols && kSets * kThreads == kWarp, "rows fill warps");
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, thread = lane % kThreads;
  const int rows = (int)f.rows;
  const int row = (blockIdx.x * kWarps + warp) * (kSets * kRows) + lane / kThreads;
  const int64_t at = (int64_t)row * kThreads + thread;
  const uint4 *from = static_cast<const uint4 *>(f.x) + at;
  uint4 *to = static_cast<uint4 *>(f.y) + at;
  row_bits<T, kN> x[kRows];
#pragma unroll
  for (int u = 0; u < kRows; u++) {
    x[u].q[0] = row + u * kSets < rows ? from[u * kSets * kThreads] : make_uint4(0, 0, 0, 0);
  }
  const uint4 given = load_constant_now(static_cast<const uint4 *>(f.weight) + thread);
  float squares[kRows], rstd[kRows];
#pragma unroll
  for (int u = 0; u < kRows; u++) {
    squares[u] = square_sum(x[u]);
  }
  const float sum = dealt_sum<kThreads>(squares, lane);
  const float own = 1.0f / sqrtf(fmaf(sum, 1 / (float)kCols, f.eps));
  const int own_row = row + thread / (kThreads / kRows) * kSets;
  if (f.rstd && thread % (kThreads / kRows) == 0 && own_row < rows) {
    f.rstd[own_row] = own;
  }
  collect<kThreads>(rstd, own, lane);
  const uint4 weight = plus_zero<T>(given);
#pragma unroll
  for (int u = 0; u < kRows; u++) {
    keep_bits(x[u]);
    float n[kN];
    unpack(n, x[u]);
#pragma unroll
    for (int i = 0; i < kN; i++) {
      n[i] *= rstd[u];
    }
    pack_bits(x[u], n);
    const uint4 y = pair_products<T>(x[u].q[0], weight);
    if (row + u * kSets < rows) {
      to[u * kSets * kThreads] = y;
    }
  }
}

template <norm_kind kKind, typename T, int kCols, int kVectors, int kRows, int kGroups, int kBlocks>
tg_status launch_fixed(const tg_context *ctx, const norm_forward &f)
{
  const dim3 grid((unsigned)divide_up(f.rows, kRows * kGroups));
  return launch(ctx, rms_norm_fwd_fixed_kernel<kKind, T, kCols, kVectors, kRows, kGroups, kBlocks>,
                grid, kCols / kLanes<T> / kVectors * kGroups, 0, line_of<kKind>(f));
}

template <typename T, int kCols, int kRows, int kWarps, int kBlocks>
tg_status launch_pairs(const tg_context *ctx, const norm_forward &f)
{
  constexpr int kAtOnce = kWarps * kWarp / (kCols / kLanes<T>)*kRows;
  const dim3 grid((unsigned)divide_up(f.rows, kAtOnce));
  return launch(ctx, rms_norm_fwd_pairs_kernel<T, kCols, kRows, kWarps, kBlocks>, grid,
                kWarp * kWarps, 0, f);
}

constexpr int kFewRows = 1024;

/** Returns TG_UNSUPPORTED if no kernel is compiled for the width. */
template <typename T> tg_status launch_alone(const tg_context *ctx, const norm_forward &f)
{
  switch (f.cols) {
  case 128:
    return f.rounds && f.offset == 0 ? launch_pairs<T, 128, 4, 4, 12>(ctx, f)
                                     : launch_fixed<kNormAlone, T, 128, 1, 2, 32, 1>(ctx, f);
  case 1024:
    return f.rows <= kFewRows ? launch_few<kNormAlone, T, 1024>(ctx, f)
                              : launch_fixed<kNormAlone, T, 1024, 2, 1, 1, 24>(ctx, f);
  case 2048:
    return launch_fixed<kNormAlone, T, 2048, 2, 1, 1, 12>(ctx, f);
  case 4096:
    return launch_fixed<kNormAlone, T, 4096, 2, 1, 1, 6>(ctx, f);
  case 8192: /* for many rows 2 % slower than the general kernel */
    return f.rows > kFewRows ? TG_UNSUPPORTED
                             : launch_fixed<kNormAlone, T, 8192, 4, 1, 1, 4>(ctx, f);
  default:
    return TG_UNSUPPORTED;
  }
}

/** The same for gated rows. */
template <typename T> tg_status launch_gated(const tg_context *ctx, const norm_forward &f)
{
  switch (f.cols) {
  case 128:
    return launch_fixed<kNormGated, T, 128, 1, 1, 8, 12>(ctx, f);
  case 512:
    return f.rows <= kFewRows ? launch_few<kNormGated, T, 512>(ctx, f)
                              : launch_fixed<kNormGated, T, 512, 2, 1, 4, 8>(ctx, f);
  case 1024:
    return f.rows <= kFewRows ? launch_few<kNormGated, T, 1024>(ctx, f)
                              : launch_fixed<kNormGated, T, 1024, 2, 1, 1, 16>(ctx, f);
  default:
    return TG_UNSUPPORTED;
  }
}

/** Returns TG_UNSUPPORTED if no fixed-width kernel fits the rows. */
template <norm_kind kKind, typename T>
tg_status launch_for_width(const tg_context *ctx, const norm_forward &f)
{
  const bool gated = kKind == kNormGated;
  if (!f.whole || f.x_step != f.cols || f.y_step != f.cols || (gated && f.other_step != f.cols) ||
      f.rows > INT32_MAX / 2) {
    return TG_UNSUPPORTED;
  }
  if constexpr (kKind == kNormGated) {
    return launch_gated<T>(ctx, f);
  } else {
    return launch_alone<T>(ctx, f);
  }
}
} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
