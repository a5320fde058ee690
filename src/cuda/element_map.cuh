/**
 * The loop of all element-wise ops on [rows, cols]: element (i, j) of each output is a function of
 * the elements (i, j) of the inputs. Outputs may be inputs: a thread reads before it writes.
 *
 * Each thread makes 16 bytes of an output, a block kMapThreads of these, and ends: with all places
 * of the device taken, short blocks keep more of memory's queue full than a loop does.
 */
#ifndef TGI_CUDA_ELEMENT_MAP_CUH
#define TGI_CUDA_ELEMENT_MAP_CUH

#include "cuda/vec.cuh"

inline namespace TGI_CUDA_ENTRY
{

constexpr int kMapThreads = 256;

template <typename T, int kIn, int kOut> struct map_views {
  const T *in[kIn];
  T *out[kOut];
  int64_t in_step[kIn], out_step[kOut]; /* elements from row to row */
  int64_t rows, cols, pieces;           /* pieces: blocks for a row */
};

/** Function: void operator()(const float (&in)[kIn], float (&out)[kOut]) const, on the device. */
template <bool kAligned, typename T, int kIn, int kOut, typename Function>
__device__ __forceinline__ void element_map_piece(const map_views<T, kIn, kOut> &v, int64_t row,
                                                  int64_t first, const Function &function)
{
  constexpr int kN = kLanes<T>;
  const int64_t j = first + threadIdx.x * kN;
  if (kAligned && j + kN <= v.cols) {
    float in[kIn][kN], out[kOut][kN];
#pragma unroll
    for (int k = 0; k < kIn; k++) {
      load(in[k], v.in[k] + row * v.in_step[k] + j);
    }
#pragma unroll
    for (int i = 0; i < kN; i++) {
      float one[kIn], result[kOut];
#pragma unroll
      for (int k = 0; k < kIn; k++) {
        one[k] = in[k][i];
      }
      function(one, result);
#pragma unroll
      for (int k = 0; k < kOut; k++) {
        out[k][i] = result[k];
      }
    }
#pragma unroll
    for (int k = 0; k < kOut; k++) {
      store(v.out[k] + row * v.out_step[k] + j, out[k]);
    }
    return;
  }
  /* The end of a row, a few elements of one thread; or rows that are not aligned. */
  const int64_t start = kAligned ? j : first + threadIdx.x, step = kAligned ? 1 : kMapThreads;
  for (int i = 0; i < kN; i++) {
    const int64_t at = start + i * step;
    if (at < v.cols) {
      float one[kIn], result[kOut];
#pragma unroll
      for (int k = 0; k < kIn; k++) {
        one[k] = to_f32(v.in[k][row * v.in_step[k] + at]);
      }
      function(one, result);
#pragma unroll
      for (int k = 0; k < kOut; k++) {
        v.out[k][row * v.out_step[k] + at] = from_f32<T>(result[k]);
      }
    }
  }
}

/** A loop only where there are more pieces than a grid has blocks. */
template <bool kAligned, typename T, int kIn, int kOut, typename Function>
__global__ void __launch_bounds__(kMapThreads)
    element_map_kernel(const map_views<T, kIn, kOut> v, const Function function)
{
  for (int64_t block = blockIdx.x; block < v.rows * v.pieces; block += gridDim.x) {
    const int64_t row = v.rows == 1 ? 0 : block / v.pieces;
    const int64_t first = (block - row * v.pieces) * (kMapThreads * kLanes<T>);
    element_map_piece<kAligned>(v, row, first, function);
  }
}

/** Maps views [rows, cols] of one dtype, T. */
template <typename T, int kIn, int kOut, typename Function>
tg_status element_map(const tg_context *ctx, const tg_tensor *const (&in)[kIn],
                      const tg_tensor *const (&out)[kOut], Function function)
{
  map_views<T, kIn, kOut> v = {};
  v.rows = in[0]->shape[0];
  v.cols = in[0]->shape[1];
  bool dense = true, aligned = true;
  for (int k = 0; k < kIn; k++) {
    v.in[k] = static_cast<const T *>(in[k]->data);
    v.in_step[k] = tgi_stride(in[k], 0);
    dense = dense && tgi_is_dense(in[k]);
    aligned = aligned && rows_aligned(in[k], 16);
  }
  for (int k = 0; k < kOut; k++) {
    v.out[k] = static_cast<T *>(out[k]->data);
    v.out_step[k] = tgi_stride(out[k], 0);
    dense = dense && tgi_is_dense(out[k]);
    aligned = aligned && rows_aligned(out[k], 16);
  }
  if (dense) { /* one long row; only its start need be aligned */
    v.cols *= v.rows;
    v.rows = 1;
    aligned = true;
    for (int k = 0; k < kIn; k++) {
      aligned = aligned && (uintptr_t)v.in[k] % 16 == 0;
    }
    for (int k = 0; k < kOut; k++) {
      aligned = aligned && (uintptr_t)v.out[k] % 16 == 0;
    }
  }
  v.pieces = divide_up(v.cols, (int64_t)kMapThreads * kLanes<T>);
  const dim3 grid = grid_of(v.rows * v.pieces);
  return aligned ? launch(ctx, element_map_kernel<true, T, kIn, kOut, Function>, grid, kMapThreads,
                          0, v, function)
                 : launch(ctx, element_map_kernel<false, T, kIn, kOut, Function>, grid, kMapThreads,
                          0, v, function);
}

} // namespace TGI_CUDA_ENTRY

#endif
