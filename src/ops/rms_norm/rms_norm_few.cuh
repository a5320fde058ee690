/**
 * RMSNorm of few bf16 rows, alone or gated, whose width a kernel knows: each thread has one vector,
 * where the kernels for more rows have two, for a row's time is what a thread does one after the
 * other. The bits are those of the other kernels.
 */
#ifndef TGI_OPS_RMS_NORM_FEW_CUH
#define TGI_OPS_RMS_NORM_FEW_CUH

#include "ops/rms_norm/rms_norm_line.cuh"

inline namespace TGI_CUDA_ENTRY
{

namespace
{

/**
 * 1.0f / sqrtf(v), bit for bit and without a branch, whose other side is code to be fetched: a
 * corrected step to the root and one to its inverse, both rounded exactly for numbers in the middle
 * of the range (Markstein 1990); smaller ones are brought there. 0, infinity, NaN and what is below
 * 0 are as the device's unit has them.
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
 * A block for a row. Half a warp has the first vectors of threads that would have two, the other
 * half the second ones; warp 2w + b has those of threads 32w + 2i + b, for what these found is what
 * a warp of such threads adds last.
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
