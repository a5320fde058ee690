/**
 * The loop of all element-wise ops on [rows, cols]: element (i, j) of each output is a function of
 * the elements (i, j) of the inputs. Outputs may be inputs: a thread reads before it writes.
 *
 * Each thread makes a vector or two of 16 bytes of an output, a block kMapThreads times these, and
 * ends: with all places of the device taken, short blocks keep more of memory's queue full than a
 * loop does.
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

/** Vectors of a thread: with one input, two of them keep memory busier while others compute. */
template <int kIn> constexpr int kMapVectors = kIn == 1 ? 2 : 1;

/** Elements of a block. */
template <typename T, int kIn> constexpr int kMapPiece = kMapThreads *kMapVectors<kIn> *kLanes<T>;

/** Function: void operator()(const float (&in)[kIn], float (&out)[kOut]) const, on the device.
 * kCount vectors from `at` on, each kMapThreads vectors behind the one before. */
template <int kCount, typename T, int kIn, int kOut, typename Function>
__device__ __forceinline__ void element_map_vectors(const map_views<T, kIn, kOut> &v, int64_t row,
                                                    int64_t at, const Function &function)
{
  constexpr int kN = kLanes<T>, kStep = kMapThreads * kN;
  using vector = pack<T, kN>;
  vector in[kIn][kCount];
#pragma unroll
  for (int u = 0; u < kCount; u++) {
#pragma unroll
    for (int k = 0; k < kIn; k++) {
      in[k][u] = *reinterpret_cast<const vector *>(v.in[k] + row * v.in_step[k] + at + u * kStep);
    }
  }
#pragma unroll
  for (int u = 0; u < kCount; u++) {
    vector out[kOut];
#pragma unroll
    for (int i = 0; i < kN; i++) {
      float one[kIn], result[kOut];
#pragma unroll
      for (int k = 0; k < kIn; k++) {
        one[k] = to_f32(in[k][u].e[i]);
      }
      function(one, result);
#pragma unroll
      for (int k = 0; k < kOut; k++) {
        out[k].e[i] = from_f32<T>(result[k]);
      }
    }
#pragma unroll
    for (int k = 0; k < kOut; k++) {
      *reinterpret_cast<vector *>(v.out[k] + row * v.out_step[k] + at + u * kStep) = out[k];
    }
  }
}

/** `count` elements from `start` on, one by one, as far as there are columns. */
template <typename T, int kIn, int kOut, typename Function>
__device__ __forceinline__ void element_map_elements(const map_views<T, kIn, kOut> &v, int64_t row,
                                                     int64_t start, int step, int count,
                                                     const Function &function)
{
#pragma unroll 1
  for (int i = 0; i < count; i++) {
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

/** The elements of a block from `first` on. */
template <bool kAligned, typename T, int kIn, int kOut, typename Function>
__device__ __forceinline__ void element_map_piece(const map_views<T, kIn, kOut> &v, int64_t row,
                                                  int64_t first, const Function &function)
{
  constexpr int kN = kLanes<T>, kStep = kMapThreads * kN, kVectors = kMapVectors<kIn>;
  if (!kAligned) {
    element_map_elements(v, row, first + threadIdx.x, kMapThreads, kVectors * kN, function);
    return;
  }
  const int64_t j = first + threadIdx.x * kN;
  if (j + (kVectors - 1) * kStep + kN <= v.cols) {
    element_map_vectors<kVectors>(v, row, j, function);
    return;
  }
#pragma unroll 1
  for (int u = 0; u < kVectors; u++) { /* the last piece of a row */
    if (j + u * kStep + kN <= v.cols) {
      element_map_vectors<1>(v, row, j + u * kStep, function);
    } else {
      element_map_elements(v, row, j + u * kStep, 1, kN, function);
    }
  }
}

/** The row of a piece. */
template <typename T, int kIn, int kOut>
__device__ __forceinline__ int64_t row_of_piece(const map_views<T, kIn, kOut> &v, int64_t piece)
{
  if (v.rows == 1) {
    return 0;
  }
  if (v.rows * v.pieces <= INT32_MAX) { /* a short division */
    return (uint32_t)piece / (uint32_t)v.pieces;
  }
  return piece / v.pieces;
}

/** A loop only where there are more pieces than a grid has blocks. */
template <bool kAligned, typename T, int kIn, int kOut, typename Function>
__global__ void __launch_bounds__(kMapThreads)
    element_map_kernel(const map_views<T, kIn, kOut> v, const Function function)
{
  for (int64_t block = blockIdx.x; block < v.rows * v.pieces; block += gridDim.x) {
    const int64_t row = row_of_piece(v, block);
    const int64_t first = (block - row * v.pieces) * kMapPiece<T, kIn>;
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
  v.pieces = divide_up(v.cols, kMapPiece<T, kIn>);
  const dim3 grid = grid_of(v.rows * v.pieces);
  return aligned ? launch(ctx, element_map_kernel<true, T, kIn, kOut, Function>, grid, kMapThreads,
                          0, v, function)
                 : launch(ctx, element_map_kernel<false, T, kIn, kOut, Function>, grid, kMapThreads,
                          0, v, function);
}

} // namespace TGI_CUDA_ENTRY

#endif
