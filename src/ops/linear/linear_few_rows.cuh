/**
 * x W^T for few rows of x: one reading of W at memory's pace, with the bits of e.cuh.
 *
 * Method  A block has 32 rows of W and up to kRows of x; its warps take blocks of kSumBlock
 *         products in turns. A warp brings 32 x 32 weights into shared memory by coalesced loads,
 *         and each lane goes along a row of W: a chain in the order of k. The chains' sums are
 *         added in order after each round of the warps.
 * Bound   Memory: W once for every kRows rows of x, from the second-level cache after the first.
 */
#ifndef TGI_OPS_LINEAR_FEW_ROWS_CUH
#define TGI_OPS_LINEAR_FEW_ROWS_CUH

#include "cuda/gemm/gemm_tile.cuh"
#include "cuda/reduce.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kFewWarps = 8;
constexpr int kFewOuts = kWarp;       /* rows of W of a block */
constexpr int kFewK = 32;             /* columns of W that are staged together */
constexpr int kFewStride = kFewK + 4; /* lanes read vectors of their rows without conflicts */
constexpr int64_t kFewRowsMost = 16;  /* rows of x up to which this is taken */

struct few_rows_task {
  const void *x, *weight, *bias;
  void *y;
  int64_t rows, in, out, x_step, weight_step, y_step;
  tg_dtype x_dtype, weight_dtype, bias_dtype, y_dtype;
  bool aligned; /* rows of W, to 16 bytes */
};

/** Weights [o0, o0 + 32) x [k0, k0 + 32) to a warp's tile; 0 where there are none. */
template <typename T>
__device__ __forceinline__ void stage_weights(const few_rows_task &p, int64_t o0, int64_t k0,
                                              float *tile)
{
  constexpr int kN = kLanes<T>, kAcross = kFewK / kN, kDown = kWarp / kAcross;
  const int lane = threadIdx.x % kWarp;
  const T *weight = static_cast<const T *>(p.weight);
  if (p.aligned && k0 + kFewK <= p.in && o0 + kFewOuts <= p.out) {
    pack<T, kN> raw[kFewOuts / kDown];
    const T *from = weight + (o0 + lane / kAcross) * p.weight_step + k0 + lane % kAcross * kN;
#pragma unroll
    for (int i = 0; i < kFewOuts / kDown; i++) {
      raw[i] = *reinterpret_cast<const pack<T, kN> *>(from + (int64_t)i * kDown * p.weight_step);
    }
#pragma unroll
    for (int i = 0; i < kFewOuts / kDown; i++) {
      float *to = tile + (i * kDown + lane / kAcross) * kFewStride + lane % kAcross * kN;
#pragma unroll
      for (int j = 0; j < kN; j += 4) {
        *reinterpret_cast<float4 *>(to + j) =
            make_float4(to_f32(raw[i].e[j]), to_f32(raw[i].e[j + 1]), to_f32(raw[i].e[j + 2]),
                        to_f32(raw[i].e[j + 3]));
      }
    }
    return;
  }
#pragma unroll 8
  for (int i = 0; i < kFewOuts; i++) {
    const bool exists = o0 + i < p.out && k0 + lane < p.in;
    tile[i * kFewStride + lane] =
        exists ? to_f32(weight[(o0 + i) * p.weight_step + k0 + lane]) : 0.0f;
  }
}

template <typename T, int kRows, typename Finish>
__global__ void __launch_bounds__(kFewWarps *kWarp, 2)
    linear_fwd_few_rows_kernel(const few_rows_task p, const Finish finish)
{
  static_assert(kRows <= kFewWarps, "a warp adds up one row's sums");
  __shared__ __align__(16) float w_tile[kFewWarps][kFewOuts * kFewStride];
  __shared__ __align__(16) float x_tile[kFewWarps][kRows * kFewK];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t strips = divide_up(p.rows, kRows);
  const int64_t tiles = divide_up(p.out, kFewOuts) * strips;
  constexpr int64_t kRound = (int64_t)kFewWarps * kSumBlock;

  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t o0 = tile / strips * kFewOuts, r0 = tile % strips * kRows;
    float total = 0; /* of row `warp`, column `lane` */
    for (int64_t round = 0; round < p.in; round += kRound) {
      const int64_t begin = round + warp * kSumBlock;
      float sum[kRows];
#pragma unroll
      for (int r = 0; r < kRows; r++) {
        sum[r] = 0;
      }
      for (int s = 0; s < kSumBlock && begin + s < p.in; s += kFewK) {
        const int64_t k0 = begin + s;
        stage_weights<T>(p, o0, k0, w_tile[warp]);
#pragma unroll
        for (int r = 0; r < kRows; r++) {
          const bool exists = r0 + r < p.rows && k0 + lane < p.in;
          x_tile[warp][r * kFewK + lane] =
              exists ? load_any(p.x, p.x_dtype, (r0 + r) * p.x_step + k0 + lane) : 0.0f;
        }
        __syncwarp();
#pragma unroll
        for (int k = 0; k < kFewK; k += 4) {
          const float4 w = *reinterpret_cast<const float4 *>(w_tile[warp] + lane * kFewStride + k);
#pragma unroll
          for (int r = 0; r < kRows; r++) {
            const float4 x = *reinterpret_cast<const float4 *>(x_tile[warp] + r * kFewK + k);
            sum[r] = fmaf(x.x, w.x, sum[r]);
            sum[r] = fmaf(x.y, w.y, sum[r]);
            sum[r] = fmaf(x.z, w.z, sum[r]);
            sum[r] = fmaf(x.w, w.w, sum[r]);
          }
        }
        __syncwarp();
      }
      /* The warp's own tile, which it has read, holds its sums for the others. */
#pragma unroll
      for (int r = 0; r < kRows; r++) {
        w_tile[warp][r * kWarp + lane] = sum[r];
      }
      __syncthreads();
      if (warp < kRows) {
        for (int j = 0; j < kFewWarps && round + j * kSumBlock < p.in; j++) {
          total = total + w_tile[j][warp * kWarp + lane];
        }
      }
      __syncthreads();
    }
    const int64_t row = r0 + warp, col = o0 + lane;
    if (warp < kRows && row < p.rows && col < p.out) {
      if (p.bias) {
        total = total + load_any(p.bias, p.bias_dtype, col);
      }
      store_any(p.y, p.y_dtype, row * p.y_step + col, finish(total, 0, row, col));
    }
  }
}

template <typename T, typename Finish>
tg_status few_rows_launch(const tg_context *ctx, const few_rows_task &p, const Finish &finish)
{
  const int64_t panels = divide_up(p.out, kFewOuts);
  const int threads = kFewWarps * kWarp;
  if (p.rows == 1) {
    return launch(ctx, linear_fwd_few_rows_kernel<T, 1, Finish>, grid_of(panels), threads, 0, p,
                  finish);
  }
  if (p.rows <= 4) {
    return launch(ctx, linear_fwd_few_rows_kernel<T, 4, Finish>, grid_of(panels), threads, 0, p,
                  finish);
  }
  return launch(ctx, linear_fwd_few_rows_kernel<T, 8, Finish>,
                grid_of(panels * divide_up(p.rows, 8)), threads, 0, p, finish);
}

} // namespace TGI_CUDA_ENTRY

#endif
