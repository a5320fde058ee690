/**
 * Fixed-width RMSNorm forward for few contiguous bf16 rows, plain or gated.
 *
 * Method     One vector per thread, where the kernels for more rows have two. The bits are those of
 *            the other kernels.
 * Work       One block per row.
 * Bound      Latency: with few rows the time is that of one row, the serial work of a thread.
 */
#ifndef TGI_OPS_RMS_NORM_FEW_CUH
#define TGI_OPS_RMS_NORM_FEW_CUH

#include "ops/shared/norms/rms_norm_line.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/**
 * 1.0f / sqrtf(v), bit for bit and without a branch, so that no slow path has to be fetched. One
 * corrected step gives the root and one its inverse; both are correctly rounded in the middle of
 * the range (Markstein 1990), and smaller numbers are scaled there. For 0, infinity, NaN and
 * negative numbers the result of the hardware's rsqrt is returned.
 */
__device__ __forceinline__ float rounded_inverse_root(float v)
{
  const bool small = v < 0x1p-96f;
  const float u = small ? v * 0x1p64f : v;
  const float r = inverse_root_flushed(u), near = u * r;
  const float root = fmaf(fmaf(-near, near, u), 0.5f * r, near);
  const float q = reciprocal_flushed(root);
  const float inverse = fmaf(fmaf(-root, q, 1.0f), q, q);
  return r > 0 && r < CUDART_INF_F ? (small ? inverse * 0x1p32f : inverse) : r;
}

/**
 * The layout keeps the order of the sum of kernels with two vectors per thread. The first half of a
 * warp holds the first vectors of such threads, the second half their second vectors. Warp 2w + b
 * holds those of threads 32w + 2i + b, since a warp of such threads adds even and odd lanes last.
 */
template <norm_kind kKind, typename T, int kCols>
__global__ void __launch_bounds__(kCols / kLanes<T>)
    rms_norm_fwd_few_kernel(const norm_line<kKind> line)
{
  constexpr int kN = kLanes<T>, kStep = kCols / kN, kHalf = kWarp / 2, kWarps = kStep / kWarp;
  static_assert(kWarps == 2 || kWarps == 4, "two or four warps");
  static_assert(lay_rows(kCols, kN, kShortRow).threads * 2 == kStep, "two vectors of a thread");
  __shared__ float parts[kWarps];
  norm_forward f = {};
  f.eps = line.eps;
  f.rounds = line.rounds;
  if constexpr (kKind != kNormGated) {
    f.offset = line.offset;
  }
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int place = warp / 2 * kWarp + lane % kHalf * 2 + warp % 2 + lane / kHalf * (kStep / 2);
  const int64_t at = (int64_t)blockIdx.x * kStep + place;
  row_bits<T, kN> x, w;
  float gate[kN] = {};
  x.q[0] = static_cast<const uint4 *>(line.x)[at];
  if constexpr (kKind == kNormGated) {
    row_bits<T, kN> other;
    other.q[0] = static_cast<const uint4 *>(line.other)[at];
    w.q[0] = load_constant_now(static_cast<const uint4 *>(line.weight) + place);
    unpack(gate, other);
#pragma unroll
    for (int i = 0; i < kN; i++) {
      gate[i] = silu<T>(gate[i]);
    }
  } else {
    w.q[0] = load_constant_now(static_cast<const uint4 *>(line.weight) + place);
  }
  const float part = warp_sum(square_sum(x));
  if (lane == 0) {
    parts[warp] = part;
  }
  __syncthreads();
  float squares = parts[0] + parts[1];
  if (kWarps == 4) {
    squares += parts[2] + parts[3];
  }
  const float rstd = rounded_inverse_root(fmaf(squares, 1 / (float)kCols, f.eps));
  if (line.has_rstd && threadIdx.x == 0) {
    line.rstd[blockIdx.x] = rstd;
  }
  keep_bits(x);
  float y[kN];
  results<kKind>(y, f, rstd, x, w, [&](int i) { return gate[i]; });
  pack_bits(x, y);
  static_cast<uint4 *>(line.y)[at] = x.q[0];
}

template <norm_kind kKind, typename T, int kCols>
tg_status launch_few(const tg_context *ctx, const norm_forward &f)
{
  return launch(ctx, rms_norm_fwd_few_kernel<kKind, T, kCols>, dim3((unsigned)f.rows),
                kCols / kLanes<T>, 0, line_of<kKind>(f));
}
} // namespace

} // namespace TGI_CUDA_ENTRY

#endif
